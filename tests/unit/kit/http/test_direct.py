"""Direct routes: which requests they take, and that FastAPI describes them like any other."""

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandyard.kit.http.routes import DirectRoute, DirectRoutes, JsonResponse, checked_first


async def greet(request: Request) -> Response:
    return JsonResponse(b'"%s"' % request.path_params.get("name", "you").encode(), 202)


@pytest.fixture
def app() -> FastAPI:
    app = FastAPI()
    for path in ("/greet", "/greet/{name}/now"):
        app.router.add_api_route(
            path, greet, methods=["POST"], status_code=202, route_class_override=DirectRoute
        )
    app.router.add_api_route("/ordinary", lambda: "ordinary", methods=["POST"])
    return app


def scope(method: str, path: str, *, query: bytes = b"", origin: bytes | None = None) -> Scope:
    headers = [] if origin is None else [(b"origin", origin)]
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "headers": headers,
    }


@pytest.mark.parametrize(
    ("request_scope", "is_taken"),
    [
        (scope("POST", "/greet"), True),
        (scope("POST", "/greet/ada/now"), True),
        (scope("POST", "/greet", query=b"loud=1"), False),
        (scope("GET", "/greet"), False),
        (scope("GET", "/greet/ada/now"), False),
        (scope("POST", "/greet/ada/lovelace/now"), False),
        (scope("POST", "/ordinary"), False),
        ({**scope("POST", "/greet"), "root_path": "/behind"}, False),
        (scope("POST", "/greet", origin=b"https://elsewhere.example"), False),
    ],
)
def test_only_plain_calls_of_direct_routes_are_taken(
    app: FastAPI, request_scope: Scope, is_taken: bool
) -> None:
    assert DirectRoutes(app.routes, with_origin=False).matches(request_scope) is is_taken


def test_calls_of_web_pages_are_taken_where_nothing_is_added_for_them(app: FastAPI) -> None:
    call = scope("POST", "/greet", origin=b"https://elsewhere.example")
    assert DirectRoutes(app.routes, with_origin=True).matches(call)


@pytest.mark.parametrize("is_direct", [True, False])
async def test_both_ways_give_the_same_answer(app: FastAPI, is_direct: bool) -> None:
    direct = DirectRoutes(app.routes, with_origin=True)

    async def entry(scope: Scope, receive: Receive, send: Send) -> None:
        assert direct.matches(scope)
        await (direct if is_direct else app)(scope, receive, send)

    transport = httpx.ASGITransport(entry)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answer = await client.post("/greet/ada/now")
    assert (answer.status_code, answer.json()) == (202, "ada")
    assert dict(answer.headers) == {"content-length": "5", "content-type": "application/json"}


def test_the_document_describes_them(app: FastAPI) -> None:
    assert set(app.openapi()["paths"]) == {"/greet", "/greet/{name}/now", "/ordinary"}


async def test_a_check_comes_first_and_its_result_is_the_caller() -> None:
    async def check(request: Request) -> str:
        return "ada"

    async def endpoint(request: Request) -> Response:
        return JsonResponse(request.state.caller.encode())

    checked = checked_first(check, endpoint)
    request = Request(scope("POST", "/greet"))
    assert (await checked(request)).body == b"ada"
    assert checked.__name__ == "endpoint"

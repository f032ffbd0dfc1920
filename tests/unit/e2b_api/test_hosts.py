"""Which requests are for E2B's API, and which of its applications serves them."""

from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from sandyard.e2b_api.app import E2bApi
from sandyard.e2b_api.envd.connect import SANDBOX_ID
from sandyard.e2b_api.hosts import E2bHosts
from sandyard.kit.errors import NotFoundError
from sandyard.runtime.errors import PortClosedError

HOSTS = E2bHosts("box.test")
ID = "sbx-1m4p7s0v3y6b9e2hk"


def scope_of(path: str, host: str, query: str = "", **headers: str) -> dict[str, Any]:
    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    named = [(b"host", host.encode()), *sent]
    return {"type": "http", "path": path, "query_string": query.encode(), "headers": named}


@pytest.mark.parametrize(
    ("scope", "is_accepted"),
    [
        (scope_of("/e2b", "any.test"), True),
        (scope_of("/e2b/sandboxes", "any.test"), True),
        (scope_of("/e2bx", "any.test"), False),
        (scope_of("/sandboxes", "api.box.test"), True),
        (scope_of("/sandboxes", "API.BOX.TEST:8080"), True),
        (scope_of("/files", f"49983-{ID}.box.test"), True),
        (scope_of("/", f"3000-{ID}.box.test"), False),
        (scope_of("/files", "any.test"), False),
        (scope_of("/files", "any.test", "signature=v1_x"), True),
        (scope_of("/", "any.test", e2b_sandbox_id=ID), False),
        (scope_of("/console", "any.test", e2b_sandbox_id=ID, e2b_sandbox_port="3000"), False),
        ({**scope_of("/e2b", "any.test"), "type": "websocket"}, False),
    ],
)
def test_which_requests_are_accepted(scope: dict[str, Any], is_accepted: bool) -> None:
    assert HOSTS.accepts(scope) is is_accepted


def app_called(name: str) -> Any:
    """An application that responds with its name and what it was called with."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        host = dict(scope["headers"]).get(b"host", b"").decode()
        body = {"app": name, "sandbox": scope.get(SANDBOX_ID), "path": scope["path"], "host": host}
        await JSONResponse(body)(scope, receive, send)

    return app


def client(ports: Any = None) -> httpx.AsyncClient:
    api = E2bApi(app_called("control"), app_called("envd"), hosts=HOSTS, ports=ports)
    return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://any.test")


@pytest.mark.parametrize(
    ("path", "headers", "app", "sandbox"),
    [
        ("/e2b/sandboxes", {}, "control", None),
        ("/e2b/sandboxes", {"E2b-Sandbox-Id": ID}, "control", ID),
        ("/e2b/health", {}, "control", None),
        ("/e2b/health", {"E2b-Sandbox-Id": ID}, "envd", ID),
        ("/e2b/files", {}, "envd", None),
        ("/e2b/process.Process/List", {"E2b-Sandbox-Id": f"{ID}-client"}, "envd", ID),
        ("/health", {"Host": f"49983-{ID}.box.test"}, "envd", ID),
        ("/health", {"Host": "api.box.test"}, "control", None),
    ],
)
async def test_which_application_serves_a_request(
    path: str, headers: dict[str, str], app: str, sandbox: str | None
) -> None:
    answer = (await client().get(path, headers=headers)).json()
    assert (answer["app"], answer["sandbox"]) == (app, sandbox)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/sandboxes", {"Host": f"49983-{ID}.box.test"}),
        ("/e2b/health", {"E2b-Sandbox-Id": "odd"}),
    ],
)
async def test_a_path_that_nothing_serves(path: str, headers: dict[str, str]) -> None:
    answer = await client().get(path, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (404, 404)


async def test_another_port_is_reached_as_by_its_host() -> None:
    headers = {"E2b-Sandbox-Id": ID, "E2b-Sandbox-Port": "3000"}
    answer = (await client(app_called("ports")).get("/e2b/a/b", headers=headers)).json()
    assert (answer["app"], answer["path"], answer["host"]) == (
        *("ports", "/a/b"),
        f"3000-{ID}.box.test",
    )
    assert (await client().get("/e2b/a", headers=headers)).status_code == 404


async def test_another_port_of_a_missing_sandbox() -> None:
    async def missing(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise NotFoundError from PortClosedError()

    headers = {"E2b-Sandbox-Id": ID, "E2b-Sandbox-Port": "3000"}
    answer = await client(missing).get("/e2b/", headers=headers)
    assert answer.status_code == 502
    assert answer.json() == {
        "code": 502,
        "message": "The sandbox was not found",
        "sandboxId": ID,
    }

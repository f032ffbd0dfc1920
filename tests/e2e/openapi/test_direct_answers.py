"""Direct routes answer as the API's document says, and as the ordinary ones do."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.openapi.test_examples import faults_of
from tests.e2e.telemetry.api import Api
from tests.support.servers.processes import ServerProcess

Ask = Callable[[Api], httpx.Response]


def track(api: Api, name: str, **more: str) -> dict[str, str]:
    return api.server.track | {"X-Track-ID": name} | more


def call(api: Api, method: str, path: str, **options: Any) -> httpx.Response:
    return api.client.request(method, f"{api.server.url}{path}", **options)


def allocate(api: Api, name: str, **more: str) -> httpx.Response:
    return call(api, "POST", "/v1/allocate", headers=track(api, name, **more))


def again(api: Api) -> httpx.Response:
    allocate(api, "again")
    return allocate(api, "again")


def mark(api: Api, owner: str, by: str) -> httpx.Response:
    sandbox = allocate(api, owner).json()["sandbox_id"]
    return call(api, "POST", f"/v1/sandboxes/{sandbox}/mark-for-deletion", headers=track(api, by))


def mark_unknown(api: Api) -> httpx.Response:
    return call(api, "POST", "/v1/sandboxes/x/mark-for-deletion", headers=track(api, "t"))


ALLOCATE, DATA = "/v1/allocate", "/telemetry/v1/data"
MARK = "/v1/sandboxes/{sandbox_id}/mark-for-deletion"
ASKED: dict[tuple[str, str, int], Ask] = {
    ("post", ALLOCATE, 201): lambda api: allocate(api, "new"),
    ("post", ALLOCATE, 200): again,
    ("post", ALLOCATE, 400): lambda api: allocate(api, "no spaces"),
    ("post", ALLOCATE, 401): lambda api: call(api, "POST", ALLOCATE),
    ("post", ALLOCATE, 409): lambda api: allocate(api, "t", **{"X-Sandbox-Name-Prefix": "none"}),
    ("post", ALLOCATE, 413): lambda api: call(
        api, "POST", ALLOCATE, headers=track(api, "t"), content=b"x" * 20_000_000
    ),
    ("post", MARK, 200): lambda api: mark(api, "mine", "mine"),
    ("post", MARK, 401): lambda api: call(api, "POST", "/v1/sandboxes/x/mark-for-deletion"),
    ("post", MARK, 403): lambda api: mark(api, "theirs", "mine"),
    ("post", MARK, 404): mark_unknown,
    ("post", DATA, 200): lambda api: api.send(api.reading()),
    ("post", DATA, 400): lambda api: call(api, "POST", DATA, headers=api.device, content=b"{"),
    ("post", DATA, 401): lambda api: call(api, "POST", DATA, json={"readings": []}),
    ("get", "/healthz", 200): lambda api: call(api, "GET", "/healthz"),
    ("get", "/readyz", 200): lambda api: call(api, "GET", "/readyz"),
    ("get", "/metrics", 200): lambda api: call(api, "GET", "/metrics"),
}


@pytest.fixture(scope="module")
def api(server: ServerProcess) -> Iterator[Api]:
    api = Api(server)
    yield api
    api.client.close()


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: f"{asked[1]}-{asked[2]}")
def test_a_direct_route_answers_as_the_document_says(
    api: Api, document: dict[str, Any], asked: tuple[str, str, int]
) -> None:
    method, path, status = asked
    answer = ASKED[asked](api)
    assert answer.status_code == status, answer.text
    content = document["paths"][path][method]["responses"][str(status)]["content"]
    media_type = answer.headers["content-type"].partition(";")[0]
    assert list(content) == [media_type]
    body = answer.json() if media_type == "application/json" else answer.text
    assert faults_of(document, content[media_type]["schema"], body) == []
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize("path", [ALLOCATE, "/healthz"])
def test_it_has_the_headers_that_the_ordinary_way_gives(api: Api, path: str) -> None:
    """A query string is what direct routes leave to the ordinary way."""
    method = "POST" if path == ALLOCATE else "GET"
    headers = track(api, "a space is refused", **{"X-Request-ID": "mine"})
    if path == ALLOCATE:
        direct = call(api, method, path, headers=headers)
    else:
        direct = call(api, method, path, headers={"X-Request-ID": "mine"})
    ordinary = call(api, method, f"{path}?unknown=1", headers=headers)
    assert ordinary.status_code == 400
    assert direct.headers.keys() == ordinary.headers.keys()
    varying = {"date", "content-length"}
    for name in direct.headers.keys() - varying:
        assert direct.headers[name] == ordinary.headers[name]

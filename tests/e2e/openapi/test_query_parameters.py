"""A query parameter that a call does not take is 400, on every call of every part."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.documents.documented_calls import operations_of
from tests.support.servers.processes import ServerProcess


@pytest.fixture(scope="module")
def client(whole_server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=whole_server.url, timeout=60) as client:
        yield client


def taken_by(operation: dict[str, Any]) -> list[str]:
    return [each["name"] for each in operation.get("parameters", []) if each["in"] == "query"]


def error_of(answer: httpx.Response) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    assert body.keys() == {"error"}
    error: dict[str, Any] = body["error"]
    assert answer.headers["x-request-id"] == error["request_id"]
    return error


def test_every_call_refuses_a_parameter_that_it_does_not_take(
    client: httpx.Client, document: dict[str, Any]
) -> None:
    operations = operations_of(document)
    assert {call.split("/")[1] for call in operations} >= {"v1", "telemetry", "api", "healthz"}
    for call, operation in operations.items():
        method, _, path = call.partition(" ")
        answer = client.request(method, re.sub("{[^}]+}", "x", path), params={"surprise": "1"})
        error = error_of(answer)
        taken = taken_by(operation)
        assert (answer.status_code, error["code"]) == (400, "UNKNOWN_QUERY_PARAMETER"), call
        assert error["details"]["unknown"] == ["surprise"]
        assert sorted(error["details"]["accepted"]) == sorted(taken), call
        assert all(name in error["message"] for name in ["surprise", *taken]), call
        assert taken or "takes none" in error["message"], call


def test_no_call_refuses_a_parameter_that_it_takes(
    client: httpx.Client, document: dict[str, Any]
) -> None:
    for call, operation in operations_of(document).items():
        method, _, path = call.partition(" ")
        for name in taken_by(operation):
            answer = client.request(method, re.sub("{[^}]+}", "x", path), params={name: "1"})
            assert answer.status_code == 401, (call, name)


@pytest.mark.parametrize(
    ("query", "unknown"),
    [
        ("surprise", ["surprise"]),
        ("surprise=", ["surprise"]),
        ("LIMIT=1", ["LIMIT"]),
        ("limit=1&b=1&a=1&b=2", ["a", "b"]),
        ("sur%70rise=1", ["surprise"]),
        ("%FF=1", ["\ufffd"]),
        ("=1", [""]),
        ("x" * 100, ["x" * 64]),
        ("&".join(f"p{n:02}" for n in range(30)), [f"p{n:02}" for n in range(10)]),
    ],
)
def test_unknown_parameters_are_named_as_decoded(
    client: httpx.Client, whole_server: ServerProcess, query: str, unknown: list[str]
) -> None:
    answer = client.get(f"/v1/admin/sandboxes?{query}", headers=whole_server.admin)
    assert answer.status_code == 400
    assert error_of(answer)["details"]["unknown"] == unknown


def test_a_repeated_parameter_is_refused(client: httpx.Client, whole_server: ServerProcess) -> None:
    path = "/v1/admin/sandboxes"
    once = client.get(f"{path}?limit=1", headers=whole_server.admin)
    assert once.status_code == 200
    for query in ("limit=1&limit=2", "limit=1&limit=1", "limit=1&limit=101"):
        twice = client.get(f"{path}?{query}", headers=whole_server.admin)
        assert twice.status_code == 400
        error = error_of(twice)
        assert error["code"] == "REPEATED_QUERY_PARAMETER"
        assert error["details"] == {"repeated": ["limit"]}


def test_an_empty_query_has_no_parameters(client: httpx.Client) -> None:
    for query in ("?", "?&", "?&&"):
        assert client.get(f"/healthz{query}").status_code == 200


def test_a_refused_call_changes_nothing(client: httpx.Client, whole_server: ServerProcess) -> None:
    def count() -> dict[str, int]:
        stats: dict[str, int] = client.get("/v1/admin/stats", headers=whole_server.admin).json()
        return {name: value for name, value in stats.items() if name != "counted_at"}

    headers = whole_server.track | {"X-Track-ID": "refused"}
    before = count()
    assert client.post("/v1/allocate?force=1", headers=headers).status_code == 400
    assert count() == before


def test_head_is_refused_as_get_is(client: httpx.Client) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        assert client.head(path).status_code == 200
        assert client.head(f"{path}?surprise=1").status_code == 400


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/previews/demo"])
def test_pages_and_the_document_take_any_query(client: httpx.Client, path: str) -> None:
    assert client.get(path, params={"surprise": "1"}).status_code == 200

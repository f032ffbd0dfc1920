"""Bodies and queries about sandboxes: what is read of them, what is refused."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.requests import Request

from sandyard.e2b_api.control import parsed, query_of
from sandyard.e2b_api.errors import InvalidRequestError, NotOfferedError
from sandyard.e2b_api.sandboxes.schemas import (
    BOTH,
    AllMetricsQuery,
    ConnectBody,
    ListQuery,
    MetricsQuery,
    NewSandboxBody,
    TimeoutBody,
)


def body(**fields: Any) -> NewSandboxBody:
    return parsed(json.dumps({"templateID": "base", **fields}).encode(), NewSandboxBody)


def request(query: str) -> Request:
    return Request({"type": "http", "headers": [], "query_string": query.encode()})


@pytest.mark.parametrize(
    "fields",
    [
        {"templateID": None},
        {"templateID": ""},
        {"templateID": 1},
        {"timeout": True},
        {"timeout": "1"},
        {"timeout": -1},
        {"timeout": 1e999},
        {"envVars": {"a": None}},
        {"metadata": {"a": "\0"}},
        {"metadata": {str(n): "" for n in range(101)}},
        {"metadata": {"a": "x" * 4097}},
        {"autoPause": 1},
        {"network": []},
        {"network": {"unknown": 1}},
        {"unknown": None},
    ],
)
def test_an_invalid_body_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        body(**fields)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"null"])
def test_a_body_must_be_an_object(content: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        parsed(content, NewSandboxBody)


def test_a_message_names_the_field() -> None:
    with pytest.raises(InvalidRequestError, match="`timeout` is not valid"):
        body(timeout=-1)


@pytest.mark.parametrize("field", ["iam", "mcp"])
def test_fields_that_are_not_offered_must_be_empty(field: str) -> None:
    assert body(**{field: None}).is_public
    assert body(**{field: {}}).is_public
    with pytest.raises(NotOfferedError, match=field):
        body(**{field: [{"name": "a"}]})


def test_the_fields_of_a_sandbox() -> None:
    wanted = body(
        network={"allowPublicTraffic": False, "httpsPorts": [8443]},
        autoResume={"enabled": True},
        timeout=1.9,
        secure=True,
        autoPauseMemory=True,
    )
    assert (wanted.is_public, wanted.timeout) == (False, 1)
    assert wanted.auto_resume is not None
    assert wanted.auto_resume.enabled
    network, rules = wanted.traffic()
    assert (network, list(rules.https_ports)) == ("internet", [8443])
    assert body(allow_internet_access=False).traffic()[0] == "none"


def test_a_body_without_content_has_the_defaults() -> None:
    assert parsed(b"", TimeoutBody).timeout is None
    assert parsed(b'{"timeout": null}', TimeoutBody).timeout is None
    assert parsed(b'{"timeout": 5, "memory": false}', ConnectBody).timeout == 5


def test_the_query_of_a_list() -> None:
    found = query_of(request("state=running&state=paused&limit=7&nextToken=&order=asc"), ListQuery)
    assert (found.state, found.limit, found.next_token, found.order) == (BOTH, 7, None, "asc")
    assert query_of(request("state=running,paused"), ListQuery).state == BOTH
    assert query_of(request(""), ListQuery).state == BOTH
    moment = query_of(request("startedAfter=2026-01-31T12:00:00"), ListQuery).started_after
    assert moment == datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "query", ["state=odd", "limit=0", "limit=101", "limit=x", "order=odd", "startedAfter=odd"]
)
def test_an_invalid_query_of_a_list_is_refused(query: str) -> None:
    with pytest.raises(InvalidRequestError):
        query_of(request(query), ListQuery)


@pytest.mark.parametrize("query", ["start=-1", "start=nan", "end=1e20", "end=odd"])
def test_metrics_are_asked_for_in_unix_seconds(query: str) -> None:
    with pytest.raises(InvalidRequestError):
        query_of(request(query), MetricsQuery)
    assert query_of(request("start=1.5"), MetricsQuery).start == 1.5


def test_ids_may_be_joined_or_repeated() -> None:
    found = query_of(request("sandbox_ids=a,b&sandbox_ids=c"), AllMetricsQuery)
    assert found.names == ["a", "b", "c"]
    assert query_of(request(""), AllMetricsQuery).names == []

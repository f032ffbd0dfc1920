"""Bodies that cost the server more than their sender: many keys, many mistakes, no end."""

import json

import pytest

from sandyard.kit.http.bodies import MOST_KEYS, OPEN_BYTES
from sandyard.platform.mail.email_templates import RESET_PAGE
from tests.integration.attacks.inputs.conftest import Yard

LOGIN = "/api/v1/auth/login"
JSON = {"Content-Type": "application/json"}


def object_of(keys: int) -> bytes:
    return json.dumps({f"unknown-{number}": 1 for number in range(keys)}).encode()


async def test_an_open_call_takes_a_small_body(yard: Yard) -> None:
    answer = await yard.api.client.post(LOGIN, content=b" " * OPEN_BYTES + b"{}", headers=JSON)
    assert answer.status_code == 413
    assert len(answer.content) < 1000


async def test_an_open_call_reads_no_more_of_a_body_without_length(yard: Yard) -> None:
    head = f"POST {LOGIN} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    answer = await yard.send(head + chunk + chunk)  # and never the end
    assert b" 413 " in answer.split(b"\r\n")[0]


async def test_every_call_without_a_credential_is_an_open_one(yard: Yard) -> None:
    """It needs no mark, so that none is forgotten."""
    document = (await yard.api.client.get("/openapi.json")).json()
    found = [
        path
        for path, item in document["paths"].items()
        for operation in item.values()
        if "requestBody" in operation and not operation.get("security")
    ]
    assert LOGIN in found
    headers = JSON | {"Connection": "close"}  # a refused body ends its connection
    for path in found:
        answer = await yard.api.client.post(path, content=b"[" * (OPEN_BYTES + 1), headers=headers)
        assert answer.status_code == 413, path


@pytest.mark.parametrize("keys", [MOST_KEYS + 1, 50_000])
async def test_an_object_has_few_keys(yard: Yard, keys: int) -> None:
    answer = await yard.call("POST", "/api/v1/projects", content=object_of(keys), headers=JSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "TOO_MANY_KEYS")
    nested = b'{"name": "a", "description": ' + object_of(keys) + b"}"
    answer = await yard.call("POST", "/e2b/v3/templates", content=nested, headers=JSON)
    assert answer.status_code == 400
    assert len(answer.content) < 1000


async def test_ten_mistakes_are_named(yard: Yard) -> None:
    answer = await yard.call("POST", "/api/v1/projects", content=object_of(MOST_KEYS), headers=JSON)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert len(error["details"]["mistakes"]) == 10
    assert "and 191 more" in error["message"]
    assert len(answer.content) < 2000


async def test_nesting_is_a_mistake_of_the_caller(yard: Yard) -> None:
    deep = b'{"name":' + b"[" * 100_000
    for path in ("/api/v1/projects", "/e2b/v3/templates"):
        answer = await yard.call("POST", path, content=deep, headers=JSON)
        assert answer.status_code == 400, path


@pytest.mark.parametrize("path", ["/console/login", RESET_PAGE])
async def test_a_form_is_small_and_has_few_fields(yard: Yard, path: str) -> None:
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Sec-Fetch-Site": "same-origin",
    }
    large = await yard.api.client.post(path, content=b"a=" + b"b" * OPEN_BYTES, headers=headers)
    assert large.status_code == 413
    many = await yard.api.client.post(path, content=b"a=b&" * 200, headers=headers)
    assert many.status_code == 400


async def test_messages_into_a_sandbox_are_limited(yard: Yard) -> None:
    inside = await yard.create_e2b()
    body = b'{"path": "' + b"x" * (1 << 20) + b'"}'
    unary = await yard.call(
        "POST", "/e2b/filesystem.Filesystem/Stat", content=body, headers=inside | JSON
    )
    assert unary.status_code == 429  # Connect's resource_exhausted
    assert unary.json()["code"] == "resource_exhausted"
    stream = inside | {"Content-Type": "application/connect+json"}
    head = b"\0" + len(body).to_bytes(4, "big")
    answer = await yard.call(
        "POST", "/e2b/process.Process/Start", content=head + body[:1000], headers=stream
    )
    assert answer.status_code == 429


async def test_a_stream_that_ends_inside_a_message_is_refused(yard: Yard) -> None:
    headers = await yard.create_e2b() | {"Content-Type": "application/connect+json"}
    for sent in (b"\0\0\0", b"\0\0\0\0\x09{}"):
        answer = await yard.call(
            "POST", "/e2b/process.Process/Start", content=sent, headers=headers
        )
        assert answer.status_code == 400, answer.text

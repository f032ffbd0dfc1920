"""Bodies of requests as they are read."""

import json
import threading
from typing import Any

import pytest
from starlette.requests import Request

from sandyard.kit.http.bodies import TooManyKeysError, parse, parse_json, read_form


async def test_a_form_may_be_read_again() -> None:
    """By what handles its fields one after the other."""
    sent = [{"type": "http.request", "body": b"name=ann&empty=&n=1"}]

    async def receive() -> dict[str, Any]:
        return sent.pop()

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    for _ in range(2):
        assert await read_form(request, most_bytes=100) == {"name": "ann", "n": "1"}


def test_an_object_has_at_most_200_keys() -> None:
    """Each costs more to refuse than to send."""
    wide = {f"unknown-{number}": 1 for number in range(201)}
    for body in (wide, [{"nested": wide}]):
        with pytest.raises(TooManyKeysError):
            parse_json(json.dumps(body).encode())
    del wide["unknown-200"]
    assert parse_json(json.dumps([wide, wide]).encode()) == [wide, wide]


async def test_a_large_body_is_parsed_off_the_event_loop() -> None:
    def parser(_body: bytes) -> int:
        return threading.get_ident()

    assert await parse(parser, b" " * 64 * 1024) == threading.get_ident()
    assert await parse(parser, b" " * (64 * 1024 + 1)) != threading.get_ident()

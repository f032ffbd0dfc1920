"""Bodies of requests as they are read."""

from typing import Any

from starlette.requests import Request

from sandyard.kit.http.bodies import read_form


async def test_a_form_may_be_read_again() -> None:
    """By what handles its fields one after the other."""
    sent = [{"type": "http.request", "body": b"name=ann&empty=&n=1"}]

    async def receive() -> dict[str, Any]:
        return sent.pop()

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    for _ in range(2):
        assert await read_form(request, most_bytes=100) == {"name": "ann", "n": "1"}

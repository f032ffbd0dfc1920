"""Callers that disconnect while their sandbox is created."""

import socket
import time
from urllib.parse import urlsplit

from tests.e2e.e2b_api.conftest import E2bServer
from tests.e2e.e2b_api.test_keys import call

BODY = b'{"templateID": "base"}'


def test_creates_whose_callers_disconnect_leave_nothing_behind(e2b: E2bServer) -> None:
    url, key = urlsplit(e2b.server.url), e2b.keys["ann"]
    head = f"POST /e2b/v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\n"
    sized = f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    for moment in range(10):  # before a start can be done
        with socket.create_connection((url.hostname, url.port)) as connection:
            connection.sendall((head + sized).encode() + BODY)
            time.sleep(moment / 1000)
    until = time.monotonic() + 10
    while left := call(e2b, "GET", "/v2/sandboxes", key=key).json():
        assert time.monotonic() < until, left
        time.sleep(0.2)

"""What sandboxes serve never becomes content of the console's origin."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.integration.attacks.victims import Victim

PORT = "/files?path=/workspace/port"
PROGRAM = """
import http.server, json, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Cache-Control", "public, max-age=600")
        self.send_header("Content-Security-Policy", "default-src *")
        self.send_header("Set-Cookie", "session=fixed")
        self.send_header("Vary", "Accept")
        self.end_headers()
        self.wfile.write(("of the program: " + str(self.headers["Cookie"])).encode())
server = http.server.HTTPServer(("127.0.0.1", 0), Page)
open("port", "w").write(str(server.server_port) + chr(10))
server.serve_forever()
"""


@asynccontextmanager
async def program_in(victim: Victim) -> AsyncIterator[str]:
    """The port of a program in the sandbox."""
    command = {"process": {"cmd": "python3", "args": ["-c", PROGRAM], "cwd": "/workspace"}}
    async with victim.stream("process.Process/Start", command):
        async with asyncio.timeout(20):
            while not (
                port := await victim.inside("GET", "/files?path=/workspace/port")
            ).is_success:
                await asyncio.sleep(0.05)
        yield port.text.strip()


@pytest.mark.parametrize("path", ["/", "/login", "/static/x.js"])
async def test_headers_name_a_sandbox_below_e2b_only(victim: Victim, path: str) -> None:
    async with program_in(victim) as port:
        headers = victim.headers | {"E2b-Sandbox-Port": port}
        answer = await victim.api.client.get(path, headers=headers)
        usual = await victim.api.client.get(path)
    assert answer.status_code == usual.status_code
    assert "of the program" not in answer.text


async def test_a_program_below_e2b_can_not_act_at_this_origin(victim: Victim) -> None:
    async with program_in(victim) as port:
        headers = {"E2b-Sandbox-Port": port, "Cookie": "__Host-console=secret"}
        answer = await victim.inside("GET", "/", headers=headers)
    assert answer.text == "of the program: None"
    assert answer.headers["cache-control"] == "private, no-store"
    assert answer.headers["content-security-policy"].startswith("sandbox;")
    assert "E2b-Sandbox-Id" in answer.headers["vary"]
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/health"),
        ("GET", "/sandboxes"),
        ("GET", "/v2/sandboxes"),
        ("GET", "/files"),
        ("GET", "/nothing"),
        ("POST", "/process.Process/List"),
        ("POST", "/v2/sandboxes"),
    ],
)
@pytest.mark.parametrize("has_credentials", [True, False])
async def test_every_answer_of_e2bs_api_has_security_headers(
    victim: Victim, method: str, path: str, *, has_credentials: bool
) -> None:
    key = {"X-API-Key": victim.key["api_key"]}
    headers = victim.headers | key if has_credentials else {}
    answer = await victim.api.client.request(method, f"/e2b{path}", headers=headers)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "private, no-store"
    assert answer.headers["content-security-policy"].startswith("sandbox;")


async def test_a_link_at_this_origin_ignores_headers(victim: Victim) -> None:
    path = {"path": "/workspace/file"}
    await victim.inside("POST", "/files", params=path, content=b"<script>")
    unsigned = "/files?path=/workspace/file&signature=v1_wrong"
    answer = await victim.api.client.get(unsigned, headers=victim.headers)
    assert answer.status_code == 401
    answer = await victim.api.client.get(victim.link("/workspace/file"))
    assert answer.content == b"<script>"
    assert answer.headers["content-security-policy"].startswith("sandbox;")

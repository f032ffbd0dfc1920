"""Ports of the sandbox, forwarded to the client."""

import asyncio
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandyard.kit.free_ports import free_port
from tests.integration.sessions.ssh.clients import SshClient, opened_session

LONG_SEC = 60
ECHO = """
import socketserver, sys
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"<" + self.rfile.read() + b">")
socketserver.ThreadingTCPServer(("0.0.0.0", int(sys.argv[1])), Echo).serve_forever()
"""


@asynccontextmanager
async def forwarding(ssh: SshClient, target: str) -> AsyncIterator[int]:
    """The client's port from which connections go to the target."""
    port = free_port()
    options = ("-L", f"127.0.0.1:{port}:{target}")
    process = await ssh.start("echo in; sleep 1000", options=options, stdin=PIPE, stdout=PIPE)
    assert await process.stdout.readline() == b"in\n"
    try:
        yield port
    finally:
        process.kill()
        await process.communicate()


async def answer_of(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), LONG_SEC)
    except OSError:  # closed at once
        return b""
    finally:
        writer.close()


async def test_a_port_of_the_sandbox(ssh: SshClient) -> None:
    content = b"x" * 3_000_000
    inside = await listen_inside(ssh)
    for name in ("localhost", "127.0.0.1"):
        async with forwarding(ssh, f"{name}:{inside}") as port:
            answers = await asyncio.gather(*(answer_of(port, content) for _ in range(3)))
        assert answers == [b"<" + content + b">"] * 3


async def test_no_port_of_other_hosts_and_none_that_is_closed(ssh: SshClient) -> None:
    inside = await listen_inside(ssh)
    for target in (f"127.0.0.2:{inside}", f"0.0.0.0:{inside}", f"127.0.0.1:{free_port()}"):
        async with forwarding(ssh, target) as port:
            assert await answer_of(port, b"x") == b""


async def listen_inside(ssh: SshClient) -> int:
    """A server in the sandbox that answers what it got."""
    port = free_port()
    await ssh.box.run(["python3", "-c", ECHO, str(port)], background=True)
    ports = (await opened_session(ssh)).ports
    async with asyncio.timeout(LONG_SEC):
        while port not in await ports.listening():
            await asyncio.sleep(0.05)
    return port

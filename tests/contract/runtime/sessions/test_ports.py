"""What listens inside a machine, as every session promises it."""

import asyncio

import pytest

from sandyard.runtime.errors import NotRunningError, PortClosedError
from sandyard.runtime.sessions.model import Command, Process
from sandyard.runtime.sessions.ports import Session
from tests.support.runtime.sessions import SessionHost

ECHO = """
from http.server import BaseHTTPRequestHandler, HTTPServer

class Echo(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

server = HTTPServer(("127.0.0.1", 0), Echo)
print(server.server_port, flush=True)
server.serve_forever()
"""


async def serve_echo(session: Session) -> tuple[Process, int]:
    process = await session.processes.start(Command(("python3", "-c", ECHO)))
    async with asyncio.timeout(20):
        async for output in session.processes.output(process.id, follow=True):
            return process, int(output.data)
    raise AssertionError


def request(host: str, body: bytes) -> bytes:
    """Over HTTP, as what is in front of a machine may take nothing else."""
    lines = (
        "POST / HTTP/1.1",
        f"Host: {host}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


async def test_a_port_is_listed_and_takes_connections(session: Session) -> None:
    _, port = await serve_echo(session)
    assert port in await session.ports.listening()
    connection = await session.ports.connect(port)
    large = bytes(range(256)) * 4096
    connection.writer.write(request(connection.host or "localhost", large))
    async with asyncio.timeout(20):
        assert (await connection.reader.read()).endswith(b"\r\n\r\n" + large)
    connection.writer.close()
    await connection.writer.wait_closed()


async def test_ports_are_told_in_order_once_each(session: Session) -> None:
    ports = sorted([(await serve_echo(session))[1] for _ in range(2)])
    listening = [port for port in await session.ports.listening() if port in ports]
    assert listening == ports


async def test_a_port_closes_with_its_process(session: Session) -> None:
    process, port = await serve_echo(session)
    await session.processes.signal(process.id, 9)
    await session.processes.wait(process.id)
    assert port not in await session.ports.listening()
    with pytest.raises(PortClosedError):
        await session.ports.connect(port)


async def test_a_machine_that_ended_has_no_ports(machine: SessionHost, session: Session) -> None:
    _, port = await serve_echo(session)
    await machine.end()
    with pytest.raises(NotRunningError):
        await session.ports.listening()
    with pytest.raises(NotRunningError):
        await session.ports.connect(port)

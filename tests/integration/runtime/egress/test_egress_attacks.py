"""Attacks through the egress proxy, from inside a machine that reaches the internet."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.runtime.errors import PortClosedError
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import Running
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import (
    LIMITS,
    MEGABYTE,
    OBEDIENT,
    end_all,
    inside,
    started,
)

_OPEN = replace(OBEDIENT, network="internet")
_LIMITS = replace(LIMITS, memory_bytes=512 * MEGABYTE, processes=64)
_ASK = """
import json, socket

def ask(request, port=3128):
    with socket.create_connection(("127.0.0.1", port), 15) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer.decode("latin-1")
"""


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path / "runtime", LocalOptions(egress_networks=("127.0.0.2/32",)))
    yield runtime
    await end_all(runtime)


async def test_the_way_out_is_no_way_in(runtime: LocalRuntime) -> None:
    async with started(runtime, _OPEN, _LIMITS) as running:
        session = await runtime.session(running.run_id)
        assert 3128 not in await session.ports.listening()
        with pytest.raises(PortClosedError):
            await session.ports.connect(3128)


@asynccontextmanager
async def host_server(address: str) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Something that listens on this machine, and what it was sent."""
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret")
        writer.close()

    async with await asyncio.start_server(hear, address, 0) as server:
        yield server.sockets[0].getsockname()[1], heard


async def answers(runtime: LocalRuntime, running: Running, requests: list[str]) -> list[str]:
    code = f"{_ASK}\nprint(json.dumps([ask(each.encode('latin-1')) for each in {requests!r}]))"
    found: list[str] = json.loads(await inside(runtime, running, code))
    return found


def own_address() -> str:
    """An address of this machine that is not its loopback's, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


async def test_nothing_of_the_host_is_reached_by_any_name_for_it(runtime: LocalRuntime) -> None:
    async with (
        host_server("127.0.0.1") as (port, heard),
        host_server(own_address()) as (other_port, other_heard),
        started(runtime, _OPEN, _LIMITS) as running,
    ):
        hosts = [
            *("127.0.0.1", "localhost", "LOCALHOST.", "127.1", "2130706433", "0x7f000001", "0"),
            *("[::1]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]"),
            *("[2002:7f00:1::]", "169.254.169.254", "[fd00:ec2::254]", socket.gethostname()),
        ]
        requests = [f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n" for host in hosts]
        requests += [f"GET http://{host}:{port}/ HTTP/1.1\r\n\r\n" for host in hosts]
        requests += [
            f"GET http://{own_address()}:{other_port}/ HTTP/1.1\r\n\r\n",
            f"GET http://{socket.gethostname()}:{other_port}/ HTTP/1.1\r\n\r\n",
            f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
            f"GET http://example.org@127.0.0.1:{port}/ HTTP/1.1\r\n\r\n",
            f"GET //127.0.0.1:{port}/ HTTP/1.1\r\n\r\n",
            f"CONNECT http://127.0.0.1:{port} HTTP/1.1\r\n\r\n",
        ]
        said = await answers(runtime, running, requests)
        for request, answer in zip(requests, said, strict=True):
            assert answer.startswith(("HTTP/1.1 403", "HTTP/1.1 400", "HTTP/1.1 502")), request
        assert heard == other_heard == []


async def test_a_redirect_and_a_second_request_lead_nowhere_else(runtime: LocalRuntime) -> None:
    """A redirect is the client's to follow, by a request that is judged like any other."""
    async with (
        host_server("127.0.0.1") as (port, heard),
        host_server("127.0.0.2") as (allowed, allowed_heard),
        started(runtime, _OPEN, _LIMITS) as running,
    ):
        inner = f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n"
        url, chunked = f"http://127.0.0.2:{allowed}/", "Transfer-Encoding: chunked"
        requests = [
            f"GET {url} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n{inner}",
            f"POST {url} HTTP/1.1\r\nContent-Length: 0\r\n\r\n{inner}",
            f"POST {url} HTTP/1.1\r\nContent-Length: 4\r\n{chunked}\r\n\r\n{inner}",
            f"POST {url} HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 99\r\n\r\n{inner}",
            f"GET {url} HTTP/1.1\r\nX: y\r\n Host: 127.0.0.1\r\n\r\n{inner}",
        ]
        said = await answers(runtime, running, requests)
        assert [answer.split()[1] for answer in said] == ["200", "200", "411", "400", "400"]
        assert heard == []
        assert all(b"127.0.0.1" not in head for head in allowed_heard)
        assert len(allowed_heard) == 2


async def test_another_machine_is_not_reached(runtime: LocalRuntime) -> None:
    async with (
        started(runtime, _OPEN, _LIMITS) as other,
        started(runtime, _OPEN, _LIMITS) as running,
    ):
        await inside(runtime, other, "open('index.html', 'w').write('theirs')")
        requests = [
            f"GET http://{host}:{other.port}/ HTTP/1.1\r\n\r\n"
            for host in ("127.0.0.1", "sandbox", "localhost", "0")
        ]
        for answer in await answers(runtime, running, requests):
            assert answer.split()[1] in ("403", "502")


async def test_a_flood_does_no_harm_but_to_itself(runtime: LocalRuntime) -> None:
    """10,000 connections that say nothing, 3,000 of them at a time, heads without end, and lookups
    that take for ever: the proxy answers the next request, and the machine can be entered and
    stopped meanwhile."""
    async with (
        host_server("127.0.0.2") as (allowed, _),
        started(runtime, _OPEN, _LIMITS) as running,
    ):
        code = f"""{_ASK}
import resource, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
held = []
for number in range(10_000):
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex(("127.0.0.1", 3128))
    held.append(connection)
    if len(held) > 3000:
        held.pop(0).close()
for connection in held[::2]:
    try:
        connection.send(b"GET http://a.org/ HTTP/1.1\\r\\nX: " + b"x" * 70000)
    except OSError:
        pass
names = ["%d.%s.invalid" % (n, "x" * 60) for n in range(40)]
def look_up(name):
    try:
        ask(b"CONNECT %s:443 HTTP/1.1\\r\\n\\r\\n" % name.encode())
    except OSError:
        pass
threads = [threading.Thread(target=look_up, args=(name,)) for name in names]
[thread.start() for thread in threads]
print(number + 1)
"""
        assert await inside(runtime, running, code) == "10000"
        began = time.monotonic()
        session = await runtime.session(running.run_id)
        assert (await session.files.stat("app.py")).kind == "file"
        assert (await runtime.sample(running.run_id)).processes > 0
        assert time.monotonic() - began < 10
        request = f"GET http://127.0.0.2:{allowed}/ HTTP/1.1\r\n\r\n"
        async with asyncio.timeout(60):
            while True:
                try:
                    [answer] = await answers(runtime, running, [request])
                except ValueError:  # it was reset among the crowd
                    continue
                if answer.endswith("secret"):
                    break

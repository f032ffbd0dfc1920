"""Requests by TLS with a secret that the egress proxy puts in, beside those that it passes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.report import Figure, Measured, Say
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import Program
from sandyard.runtime.sessions.ports import Session
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, MEGABYTE, end_all, new_run_id
from tests.support.runtime.sessions import shell
from tests.support.servers.certificates import make_certificate
from tests.support.servers.injected import HOST, PLACEHOLDER, VALUE, bound, secrets_of
from tests.support.servers.own_names import OwnNames, with_own_names

_ROUNDS = 5
_MEGABYTES = 100
_REQUESTS = 300
_LEAST = 0.7
_OTHER = "other.test"
_CLIENT = """
import http.client, time
def asked(host, value, count, size):
    made = http.client.HTTPSConnection(host, {port})
    headers = dict(Authorization="Bearer " + value)
    made.request("GET", "/1", headers=headers)
    made.getresponse().read()
    began = time.monotonic()
    for _ in range(count):
        made.request("GET", f"/{{size}}", headers=headers)
        answer = made.getresponse()
        assert answer.status == 200, answer.read()
        while answer.read(1 << 20):
            pass
    return time.monotonic() - began
for _ in range({rounds}):
    for host, value in (("{host}", "{placeholder}"), ("{other}", "{value}")):
        print(asked(host, value, {requests}, 1000), asked(host, value, 1, {size}))
"""


def measure(folder: Path, say: Say) -> Measured:
    figures: list[Figure] = []

    async def scenario(names: OwnNames) -> None:
        names.set({HOST: "127.0.0.1", _OTHER: "127.0.0.1"})
        certificate = make_certificate(folder, f"DNS:{HOST}", f"DNS:{_OTHER}")
        serving = asyncio.start_server(_serve, "127.0.0.1", 0, ssl=certificate.serving())
        async with await serving as server:
            port = server.sockets[0].getsockname()[1]
            say(f"secrets: {_REQUESTS} requests and {_MEGABYTES} MB, {_ROUNDS} rounds")
            async with _machine(folder, certificate.file, port) as session:
                figures.extend(_figures(await _times(session, port)))

    asyncio.run(with_own_names(folder, scenario))
    return Measured(figures, rows=f"{_MEGABYTES} MB")


async def _times(session: Session, port: int) -> list[tuple[float, float]]:
    names = {"host": HOST, "other": _OTHER, "placeholder": PLACEHOLDER, "value": VALUE}
    sizes = {"size": _MEGABYTES * 1_000_000, "requests": _REQUESTS, "rounds": _ROUNDS}
    code = _CLIENT.format(port=port, **names, **sizes)
    lines = (await shell(session, f"python3 -c '{code}'")).decode().splitlines()
    return [(float(short), float(whole)) for short, whole in map(str.split, lines)]


def _figures(times: list[tuple[float, float]]) -> list[Figure]:
    injected, passed = times[::2], times[1::2]
    found: list[Figure] = []
    for place, name, unit, amount in (
        (0, "requests", "/s", _REQUESTS),
        (1, "throughput", " MB/s", _MEGABYTES),
    ):
        ratios = [
            theirs[place] / ours[place] for ours, theirs in zip(injected, passed, strict=True)
        ]
        with_it, without = (median(each[place] for each in way) for way in (injected, passed))
        label = f"{name}, with injection ÷ without"
        found.append(Figure.at_least(label, ratios, _LEAST))
        rates = f"{amount / with_it:,.0f}{unit}, without {amount / without:,.0f}"
        found.append(Figure(f"  {name} with injection", rates))
    return found


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As many bytes as the path says, to those who send the value."""
    chunk = bytes(1 << 18)
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            assert VALUE.encode() in head  # noqa: S101 - the proxy has put it in
            left = int(head.split(b" ", 2)[1][1:])
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % left)
            while left:
                writer.write(chunk[:left])
                left -= min(left, len(chunk))
                await writer.drain()
    except (OSError, EOFError):
        writer.close()


@asynccontextmanager
async def _machine(folder: Path, authority: Path, port: int) -> AsyncIterator[Session]:
    options = LocalOptions(egress_networks=("127.0.0.0/8",), ca_files=(authority,))
    runtime, run_id = LocalRuntime(folder / "runtime", options), new_run_id()
    secrets = replace(secrets_of(folder, bound(port)), trusted="")
    limits = replace(LIMITS, memory_bytes=512 * MEGABYTE, processes=64)
    try:
        program = replace(Program(None), network="internet", secrets=secrets)
        await runtime.start(run_id, program, limits)
        yield await runtime.session(run_id)
    finally:
        await end_all(runtime)

"""Status of 200 projects, asked by 200 callers at once, with a provider behind."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

import aiohttp

from benchmarks.load import cpu_seconds
from benchmarks.loops import run
from benchmarks.report import Figure, Measured, Say
from sandyard.kit.free_ports import free_port
from tests.support.e2b.double import API_KEY
from tests.support.e2b.double_process import e2b_double_process
from tests.support.platform.in_process import read_outbox, token_in
from tests.support.servers.processes import clean_environment, wait_until_ready

_PROJECTS = 200
_MADE_AT_ONCE = 4
_ROUNDS = 10
_PAUSE_SEC = 1.0
_LONG_PAUSE_SEC = 31.0
"""After it every answer is stored again, as with pages that ask once a minute."""
_LIMIT_MS = 150
_PASSWORD = "correct horse battery"

Call = Callable[..., Awaitable[Any]]


def measure(folder: Path, say: Say) -> Measured:
    with previews_server(folder) as (url, e2b, pid):
        return run(_measure(url, e2b, folder / "data", say, pid))


@contextmanager
def previews_server(folder: Path) -> Iterator[tuple[str, str, int]]:
    """The addresses of its API and of the double of E2B behind it, and its process id."""
    with e2b_double_process() as e2b:
        port = free_port()
        environment = {
            "PARTS": "platform,previews",
            "PREVIEW_PROVIDER": "e2b",
            "E2B_API_KEY": API_KEY,
            "E2B_API_URL": e2b,
            "E2B_SANDBOX_URL": e2b,
            "PREVIEWS_PER_ACCOUNT": str(_PROJECTS),
            "LOG_LEVEL": "WARNING",
        }
        data = folder / "data"
        command = [sys.executable, "-m", "sandyard", "serve", "--port", str(port)]
        server = subprocess.Popen(
            [*command, "--data-dir", str(data)],
            env=clean_environment(environment),
            stdout=subprocess.DEVNULL,
        )
        try:
            wait_until_ready(f"http://127.0.0.1:{port}", server)
            yield f"http://127.0.0.1:{port}/api/v1", e2b, server.pid
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(20)


async def _measure(url: str, e2b: str, data: Path, say: Say, pid: int) -> Measured:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def call(method: str, path: str, body: Any = None, **headers: str) -> Any:
            async with session.request(method, url + path, json=body, headers=headers) as answer:
                if answer.status >= 300:
                    raise RuntimeError(f"{path}: {answer.status} {await answer.text()}")
                return await answer.json()

        key = await sign_up(call, data)
        say(f"previews: making {_PROJECTS} previews")
        projects = await make_previews(call, key, _PROJECTS)
        async with session.post(f"{e2b}/_double/reset-counts"):
            pass
        say(f"previews: {_PROJECTS} connections")
        await _connect(session, url)
        latencies: list[float] = []

        async def ask(project: str) -> None:
            started = time.perf_counter()
            answer = await call("GET", f"/projects/{project}/sandbox/status", **key)
            latencies.append((time.perf_counter() - started) * 1000)
            if answer["status"] != "running":
                raise RuntimeError(f"a preview is {answer['status']}")

        cpu_before = cpu_seconds(pid)
        for number in range(_ROUNDS):
            await asyncio.gather(*(ask(project) for project in projects))
            slowest = max(latencies[-_PROJECTS:])
            say(f"previews: round {number + 1} of {_ROUNDS}, the slowest {slowest:.0f} ms")
            await asyncio.sleep(_LONG_PAUSE_SEC if number == _ROUNDS // 2 else _PAUSE_SEC)
        async with session.get(f"{e2b}/_double") as answer:
            most = max((await answer.json())["most_in_flight"].values())
    cpu_usec = (cpu_seconds(pid) - cpu_before) / len(latencies) * 1e6
    p99 = quantiles(latencies, n=100)[98]
    middle = quantiles(latencies, n=100)[49]
    return Measured(
        [
            Figure.below(
                f"status of {_PROJECTS} projects, all asked at once, p99", p99, _LIMIT_MS, "ms"
            ),
            Figure("  median, and the server's CPU for one", f"{middle:.1f} ms, {cpu_usec:.0f} µs"),
            Figure.at_most("provider calls in flight per project, most", most, 1),
        ],
        f"previews {_PROJECTS}",
    )


async def _connect(session: aiohttp.ClientSession, url: str) -> None:
    """Open a connection for each caller: work that 200 browsers share, and that one process would
    count as the server's time."""

    async def ask() -> None:
        async with session.get(url.removesuffix("/api/v1") + "/healthz") as answer:
            await answer.read()

    await asyncio.gather(*(ask() for _ in range(_PROJECTS)))
    await asyncio.sleep(_PAUSE_SEC)


async def sign_up(call: Call, data: Path) -> dict[str, str]:
    account = {"email": "a@example.com", "username": "ann", "password": _PASSWORD}
    await call("POST", "/auth/signup", account)
    while not (mails := read_outbox(data)):  # noqa: ASYNC110 - a file has no event
        await asyncio.sleep(0.05)
    await call("POST", "/auth/verify", {"token": token_in(mails[-1])})
    login = await call("POST", "/auth/login", {"login": "ann", "password": _PASSWORD})
    bearer = {"Authorization": f"Bearer {login['access_token']}"}
    made = await call("POST", "/api-keys", {"name": "bench"}, **bearer)
    return {"X-API-Key": made["api_key"]}


async def make_previews(call: Call, key: dict[str, str], count: int) -> list[str]:
    at_once = asyncio.Semaphore(_MADE_AT_ONCE)
    return await asyncio.gather(*(_preview(call, key, n, at_once) for n in range(count)))


async def _preview(call: Call, key: dict[str, str], number: int, at_once: asyncio.Semaphore) -> str:
    files = {"files": [{"path": "index.html", "content": f"<h1>{number}</h1>"}]}
    async with at_once:
        project = (await call("POST", "/projects", {"name": f"p{number}"}, **key))["project_id"]
        await call("PUT", f"/projects/{project}/files", files, **key)
        await call("POST", f"/projects/{project}/sync", None, **key)
    return str(project)

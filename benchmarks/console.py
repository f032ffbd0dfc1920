"""Every screen of the console on a large site, and what many open consoles cost."""

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Event, Thread
from urllib.parse import urlsplit

import httpx
import psutil

from benchmarks.report import Figure, Measured, Say
from tests.crowds import Crowd
from tests.e2e.console.people import ADMIN, open_accounts
from tests.e2e.console.screens import make_one_of_each, screens_of
from tests.e2e.console.sessions import ConsoleSession, session_of
from tests.servers import ServerProcess, sandyard_serve

_CROWD = Crowd(pool=100_000, sandboxes=1_000, devices=10_000)
_LIMIT_SEC = 0.5
_LIMIT_KB = 200
_ROUNDS = 10
_OPEN = 200
_SECONDS = 20
_OPEN_SECONDS = 100
_VIEWS = ("pool", "list")
"""What the page of the pool asks for again when it is told of a change; the first of them now and
then in any case."""
_REFRESHED_EVERY_SEC = 120
_MOST_OF_A_CORE = 10


@dataclass(frozen=True, slots=True)
class _Screen:
    path: str
    seconds: float
    cpu_seconds: float
    kilobytes: float


def measure(folder: Path, say: Say) -> Measured:
    say("console: storing a large site")
    with sandyard_serve(folder / "data") as server:
        open_accounts(server)
        make_one_of_each(server, session_of(server, ADMIN))
    _CROWD.fill(folder / "data", ADMIN)
    began = int(time.time())
    with sandyard_serve(folder / "data") as server:
        session = session_of(server, ADMIN)
        _wait_for_first_sync(session, began)
        screens = [_measured(server, session, path, say) for path in screens_of(session)]
        figures = _of_screens(screens)
        views = [_measured(server, session, "/console/labs", say, each) for each in _VIEWS]
        figures += _of_many(server, session, views, say)
    shown = f"{_CROWD.pool:,} pool, {_CROWD.sandboxes:,} sandboxes, {_CROWD.devices:,} devices"
    return Measured(figures, shown)


def _wait_for_first_sync(session: ConsoleSession, began: float) -> None:
    """It compares the whole pool with the provider's list, and is no part of a screen."""
    while True:
        jobs = session.call("GET", "/v1/admin/jobs").json()["jobs"]
        if all(each["finished_at"] >= began for each in jobs if each["name"] == "sync"):
            return
        time.sleep(0.2)


def _measured(
    server: ServerProcess, session: ConsoleSession, path: str, say: Say, view: str | None = None
) -> _Screen:
    say(f"console: {path}")
    process = psutil.Process(server.process.pid)
    times: list[float] = []
    before = _cpu(process)
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        answer = session.get(path, view).raise_for_status()
        times.append(time.perf_counter() - started)
    used = (_cpu(process) - before) / _ROUNDS
    return _Screen(path, median(times), used, len(answer.content) / 1000)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _of_screens(screens: Sequence[_Screen]) -> list[Figure]:
    slowest = max(screens, key=lambda each: each.seconds)
    dearest = max(screens, key=lambda each: each.cpu_seconds)
    largest = max(screens, key=lambda each: each.kilobytes)
    return [
        Figure.below(f"slowest screen ({slowest.path})", slowest.seconds, _LIMIT_SEC, "s"),
        Figure(f"  most CPU ({dearest.path})", f"{dearest.cpu_seconds * 1000:.0f} ms"),
        Figure.below(f"largest screen ({largest.path})", largest.kilobytes, _LIMIT_KB, "kB"),
    ]


def _of_many(
    server: ServerProcess, session: ConsoleSession, views: Sequence[_Screen], say: Say
) -> list[Figure]:
    """Of consoles that all show the pool, while it changes all the time."""
    process = psutil.Process(server.process.pid)
    with _leasing(server):
        say(f"console: {_SECONDS} s of leases, with nobody")
        alone = _share(process, _SECONDS)
        with _listening(session, _OPEN) as streams:
            say(f"console: {_OPEN_SECONDS} s of leases, with {_OPEN} open")
            share = _share(process, _OPEN_SECONDS) - alone
            told = sum(_events(each) for each in streams) / _OPEN_SECONDS
    pool, listed = views
    unasked = _OPEN / _REFRESHED_EVERY_SEC
    used = told * (pool.cpu_seconds + listed.cpu_seconds) + unasked * pool.cpu_seconds
    asked = told * len(views) + unasked
    what = f"{_OPEN} open consoles that show a pool that changes"
    return [
        Figure.below(f"CPU of {what}", share + used * 100, _MOST_OF_A_CORE, "% of a core"),
        Figure("  of it, their event streams", f"{share:.1f} %"),
        Figure(
            f"  of it, the views that they ask for, {asked:.1f} a second", f"{used * 100:.1f} %"
        ),
    ]


@contextmanager
def _leasing(server: ServerProcess) -> Iterator[None]:
    """A lease every half second."""
    has_ended = Event()

    def lease() -> None:
        while not has_ended.wait(0.5):
            headers = server.track | {"X-Track-ID": f"bench-{time.monotonic_ns()}"}
            httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=30)

    thread = Thread(target=lease)
    thread.start()
    yield
    has_ended.set()
    thread.join()


def _events(stream: socket.socket) -> int:
    """How many have come."""
    stream.settimeout(0)
    received = b""
    with suppress(BlockingIOError):
        while piece := stream.recv(65536):
            received += piece
    return received.count(b"event: ")


def _share(process: psutil.Process, seconds: float) -> float:
    """In percent of a core."""
    before = _cpu(process)
    time.sleep(seconds)
    return (_cpu(process) - before) / seconds * 100


@contextmanager
def _listening(session: ConsoleSession, count: int) -> Iterator[list[socket.socket]]:
    """So many event streams, each begun."""
    address = urlsplit(session.url)
    streams: list[socket.socket] = []
    with ExitStack() as stack:
        for _ in range(count):
            stream = socket.create_connection((address.hostname, address.port), timeout=30)
            streams.append(stack.enter_context(stream))
            lines = ["GET /console/live HTTP/1.1", f"Host: {address.netloc}"]
            lines += [f"{name}: {value}" for name, value in session.headers.items()]
            stream.sendall("\r\n".join([*lines, "", ""]).encode())
            if not stream.recv(4096).startswith(b"HTTP/1.1 200"):
                raise RuntimeError("an event stream was refused")
        yield streams

"""Commands in a sandbox and files of it over HTTP, and what starts and idle sandboxes cost."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
import psutil

from benchmarks.report import Figure, Measured, Say
from tests.support.servers.processes import ServerProcess, sandyard_serve
from tests.support.servers.users import PASSWORD, Person, create_admin

_COMMANDS = 200
_COMMAND_MS = 10
_FILE_MB = 200
_FILE_ROUNDS = 5
_FILE_MB_PER_SEC = 200
_PIECE = bytes(1 << 20)
_STARTS = 8
_WARM_SEC, _COLD_SEC = 0.05, 0.25
_IDLE = int(os.environ.get("IDLE_SANDBOXES", "40"))
_IDLE_SEC = 15
_PATIENCE_SEC = 60
_AMPLE = {
    "PARTS": "platform",
    "QUOTA_SANDBOXES": "1000",
    "WRITES_PER_ACCOUNT": "12000/minute",
    "QUOTA_CPU": "10000",
    "QUOTA_MEMORY_GB": "10000",
    "WARM_INTERVAL_SEC": "1",
    "MAX_UPLOAD_BYTES": "1000000000",
}


def measure(folder: Path, say: Say) -> Measured:
    """Commands and files."""
    with _admin(folder) as (_, account):
        path = _new(account, "box")
        account.post(f"{path}/start").raise_for_status()
        say(f"sessions: {_COMMANDS} commands")
        trips = [_timed(lambda: _command(account, path)) * 1000 for _ in range(_COMMANDS + 20)][20:]
        up, down = [], []
        for number in range(1, _FILE_ROUNDS + 1):
            say(f"sessions: {_FILE_MB} MB up and down, round {number} of {_FILE_ROUNDS}")
            up.append(_FILE_MB / _timed(lambda: _send(account, path)))
            down.append(_FILE_MB / _timed(lambda: _receive(account, path)))
    return Measured(
        [
            Figure.below("command round trip over HTTP, p50", median(trips), _COMMAND_MS, "ms"),
            Figure("  p99", f"{quantiles(trips, n=100)[98]:.1f} ms"),
            Figure.at_least(f"file of {_FILE_MB} MB up, MB/s", up, _FILE_MB_PER_SEC),
            Figure.at_least(f"file of {_FILE_MB} MB down, MB/s", down, _FILE_MB_PER_SEC),
        ]
    )


def measure_starts(folder: Path, say: Say) -> Measured:
    """Warm and cold starts, and sandboxes that nobody uses."""
    with _admin(folder) as (server, account):
        cold = [_cold_start(account, f"cold {number}") for number in range(_STARTS + 1)][1:]
        warm = [_warm_start(account, say, number) for number in range(_STARTS + 1)][1:]
        _set_warm(account, 0)
        for number in range(1, _IDLE + 1):
            say(f"starts: sandbox {number} of {_IDLE}")
            account.post(f"{_new(account, f'idle {number}')}/start").raise_for_status()
        say(f"starts: {_IDLE_SEC} seconds of nothing")
        memory, cpu = _idle(server)
    shown = "{:.3f} to {:.3f} s".format
    return Measured(
        [
            Figure.below("start of the static template, warm", median(warm), _WARM_SEC, "s"),
            Figure("  lowest and highest", shown(min(warm), max(warm))),
            Figure.below("start of the static template, cold", median(cold), _COLD_SEC, "s"),
            Figure("  lowest and highest", shown(min(cold), max(cold))),
            Figure(f"memory of each of {_IDLE} idle sandboxes", f"{memory / 1e6:.1f} MB"),
            Figure("  CPU of each", f"{cpu:.3%} of a core"),
        ]
    )


@contextmanager
def _admin(folder: Path) -> Iterator[tuple[ServerProcess, httpx.Client]]:
    with sandyard_serve(folder / "data", environment=_AMPLE) as server:
        create_admin(server, "--email", "ann@example.com", "--username", "ann")
        person = Person(server.url)
        person.log_in("ann", PASSWORD)
        with httpx.Client(
            base_url=f"{server.url}/api/v1", headers=person.headers, timeout=_PATIENCE_SEC
        ) as account:
            try:
                yield server, account
            finally:
                _end_all(account)


def _end_all(account: httpx.Client) -> None:
    while running := account.get("/sandboxes?status=running&limit=100").json()["sandboxes"]:
        for each in running:
            account.delete(f"/sandboxes/{each['sandbox_id']}").raise_for_status()


def _static(account: httpx.Client) -> str:
    [found] = account.get("/templates?visibility=official&q=static").json()["templates"]
    return str(found["template_id"])


def _set_warm(account: httpx.Client, count: int) -> None:
    body = {"warm_machines": count}
    account.patch(f"/templates/{_static(account)}", json=body).raise_for_status()


def _new(account: httpx.Client, name: str) -> str:
    body = {"name": name, "template_id": _static(account)}
    made = account.post("/sandboxes", json=body).raise_for_status().json()
    return f"/sandboxes/{made['sandbox_id']}"


def _cold_start(account: httpx.Client, name: str) -> float:
    path = _new(account, name)
    seconds = _timed(lambda: account.post(f"{path}/start").raise_for_status())
    account.delete(path).raise_for_status()
    return seconds


def _warm_start(account: httpx.Client, say: Say, number: int) -> float:
    """When one has been ready for a while: how long it takes to be is not what is measured."""
    say(f"starts: warm {number} of {_STARTS}")
    _set_warm(account, 1)
    time.sleep(3)
    return _cold_start(account, f"warm {number}")


def _timed(work: Any) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _command(account: httpx.Client, path: str) -> None:
    answer = account.post(f"{path}/commands", json={"command": ["true"]}).raise_for_status()
    if answer.json()["exit_code"] != 0:
        raise RuntimeError(answer.text)


def _send(account: httpx.Client, path: str) -> None:
    content = (_PIECE for _ in range(_FILE_MB * 1_000_000 // len(_PIECE)))
    account.put(f"{path}/files?path=large", content=content).raise_for_status()


def _receive(account: httpx.Client, path: str) -> None:
    received = 0
    with account.stream("GET", f"{path}/files?path=large") as answer:
        for piece in answer.iter_raw(1 << 20):
            received += len(piece)
    if received < _FILE_MB * 990_000:
        raise RuntimeError(f"only {received} bytes came back")


def _idle(server: ServerProcess) -> tuple[float, float]:
    """Bytes and share of a core of each sandbox, with its supervisor, agent and program."""
    time.sleep(5)
    runs = f"{server.data_dir / 'runtime'}/"
    first = [each for each in psutil.process_iter(["cmdline"]) if _supervises(each, runs)]
    family = {each for top in first for each in (top, *top.children(recursive=True))}
    before = sum(_cpu_seconds(each) for each in family)
    time.sleep(_IDLE_SEC)
    used = sum(_cpu_seconds(each) for each in family) - before
    held = sum(each.memory_full_info().pss for each in family if each.is_running())
    return held / _IDLE, used / _IDLE_SEC / _IDLE


def _supervises(process: psutil.Process, runs: str) -> bool:
    return any(word.startswith(runs) for word in process.info["cmdline"] or [])


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)

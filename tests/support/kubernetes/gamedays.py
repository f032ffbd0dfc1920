"""Game days of a cluster: a fault in the stand-in under load, until a real Prometheus sees its
alert fire, and the guarantees afterwards."""

import asyncio
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import httpx

from sandyard.tools.gameday.processes import (
    SHRINK,
    Program,
    firing_alerts,
    prometheus,
)
from tests.e2e.platform.test_crash import new_sandbox
from tests.support.kubernetes.replicas import Load, Replicas, replicas
from tests.support.servers.users import Person

_RULES = Path(__file__).parents[3] / "deploy/prometheus/rules.yml"
_WITHIN_SEC = 240
_AGE = re.compile(r'(sandyard_pods_oldest_seconds\{state="\w+"\}\[2m\]\)\) > )(\d+)')


class GameDayFailedError(Exception):
    pass


@dataclass(slots=True)
class Stage:
    found: Replicas
    ann: Person
    box: str
    other: str
    watching: Program

    def alerts(self) -> frozenset[str]:
        async def ask() -> frozenset[str]:
            async with httpx.AsyncClient(timeout=10) as client:
                return await firing_alerts(client, self.watching.url)

        return asyncio.run(ask())

    def act(self, name: str, sandbox_id: str) -> int:
        """The status of the last response; one of an outage is asked for again."""
        url = f"{self.found.servers['other'].url}/api/v1/sandboxes/{sandbox_id}/{name}"
        until = time.monotonic() + _WITHIN_SEC
        while True:
            answer = httpx.post(url, headers=self.ann.headers, timeout=180)
            if answer.status_code != 503 or time.monotonic() > until:
                return answer.status_code
            time.sleep(0.5)


@contextmanager
def pods_pending(stage: Stage) -> Iterator[None]:
    """No node has room, and a sandbox is started."""
    nodes = stage.found.serving.cluster.nodes
    nodes.has_room = False
    starting = Thread(target=stage.act, args=("start", stage.other))
    starting.start()
    yield
    nodes.has_room = True
    starting.join()


@contextmanager
def node_cut_off(stage: Stage) -> Iterator[None]:
    stage.found.cut_node(stage.box, is_cut=True)
    yield
    stage.found.cut_node(stage.box, is_cut=False)


@contextmanager
def store_away(stage: Stage) -> Iterator[None]:
    """And a sandbox is stopped."""
    found = stage.found
    stage.act("start", stage.other)
    found.cut(found.to_store, is_cut=True)
    stopping = Thread(target=stage.act, args=("stop", stage.other))
    stopping.start()
    yield
    found.cut(found.to_store, is_cut=False)
    stopping.join()


SCENARIOS: Mapping[str, tuple[str, Callable[[Stage], AbstractContextManager[None]]]] = {
    "pods-pending": ("SandyardPodsPending", pods_pending),
    "node-cut-off": ("SandyardPodsUnreachable", node_cut_off),
    "store-away": ("SandyardFilesNotStored", store_away),
}


def hold(name: str, folder: Path, postgres_url: str) -> list[str]:
    """What was seen, line by line. Raises GameDayFailedError."""
    alert, fault = SCENARIOS[name]
    with replicas(folder, postgres_url) as found, _watched(found, folder) as watching:
        ann = found.ann()
        box, other = new_sandbox(ann, "box"), new_sandbox(ann, "other")
        stage = Stage(found, ann, box, other, watching)
        _require(stage.act("start", box) == 200, "the sandbox did not start")
        with Load(found, ann, box).running() as load:
            load.until_acknowledged()
            _require(alert not in stage.alerts(), f"{alert} fired before the fault")
            begun_at = time.monotonic()
            with fault(stage):
                fired = _until(lambda: alert in stage.alerts())
                lines = [
                    f"{alert} {'fired' if fired else 'did NOT fire'} within {_since(begun_at)}"
                ]
            ended_at = time.monotonic()
            is_over = _until(lambda: alert not in stage.alerts())
            lines.append(f"{alert} {'ended' if is_over else 'went on'} {_since(ended_at)} later")
            load.until_acknowledged()
        kept = stage.ann.call("GET", f"/sandboxes/{box}")["status"]
        _require(kept == "running", f"the sandbox is {kept}")
        journal = _read(stage, "cat journal").split()
        _require(set(load.acknowledged) <= set(journal), "an acknowledged line is lost")
        _require(stage.act("stop", box) == 200, "the sandbox did not stop")
        found.check()
    _require(fired and is_over, "; ".join(lines))
    return [*lines, f"{len(load.acknowledged)} acknowledged commands, all in the file"]


@contextmanager
def _watched(found: Replicas, folder: Path) -> Iterator[Program]:
    program = shutil.which("prometheus")
    if program is None:
        raise GameDayFailedError("there is no Prometheus")
    rules = folder / "rules-by-age.yml"
    rules.write_text(_shortened_ages(_RULES.read_text()))
    targets = [each.url.removeprefix("http://") for each in found.servers.values()]
    watching = prometheus(program, folder, rules, targets)
    found.serving.run(watching.start())
    try:
        yield watching
    finally:
        found.serving.run(watching.stop())


def _shortened_ages(rules: str) -> str:
    """A threshold that is an age is shortened as each `for` is."""

    def shorter(match: re.Match[str]) -> str:
        return f"{match[1]}{max(1, int(match[2]) // SHRINK)}"

    shortened, count = _AGE.subn(shorter, rules)
    _require(count == len(SCENARIOS), "the alerts of Pods have other expressions")
    return shortened


def _read(stage: Stage, script: str) -> str:
    path, body = f"/sandboxes/{stage.box}/commands", {"command": ["sh", "-c", script]}
    return str(stage.ann.call("POST", path, body, expect=201)["result"]["stdout"])


def _until(is_so: Callable[[], bool]) -> bool:
    until = time.monotonic() + _WITHIN_SEC
    while not (found := is_so()) and time.monotonic() < until:
        time.sleep(0.5)
    return found


def _since(begun_at: float) -> str:
    return f"{time.monotonic() - begun_at:.0f} s"


def _require(is_so: bool, what: str) -> None:
    if not is_so:
        raise GameDayFailedError(what)


def hold_all(names: list[str], postgres_url: str) -> Iterator[tuple[str, bool]]:
    """Each line for the summary, and whether it passed."""
    for name in SCENARIOS:
        if names and name not in names:
            continue
        begun_at = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                lines = hold(name, Path(folder), postgres_url)
                yield f"{name}: passed in {_since(begun_at)}: {'; '.join(lines)}", True
            except (GameDayFailedError, AssertionError) as error:
                yield f"{name}: FAILED in {_since(begun_at)}: {error}", False

"""What the search finds in histories of sandboxes and previews that were written by hand."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.histories.evidence import LifeEvidence, load, save
from tests.histories.life_calls import LifeCall, LifeHistory
from tests.histories.lives import judge_previews, judge_runs


def run(
    kind: str, begin: float, status: str = "", number: int = 0, *, code: str = "ok"
) -> LifeCall:
    return LifeCall(kind, "one", begin, begin + 1, code, status, number)


def lost(kind: str, begin: float) -> LifeCall:
    return LifeCall(kind, "one", begin)


def shown(kind: str, begin: float, status: str, made: str = "") -> LifeCall:
    return LifeCall(kind, "one", begin, begin + 1, "ok", status, made=made)


POSSIBLE_RUNS = {
    "started and stopped": [run("start", 0, "running", 1), run("stop", 2, "stopped", 1)],
    "ended by itself": [run("start", 0, "running", 1), run("get", 2, "timeout", 1)],
    "a lost answer": [lost("start", 0), run("get", 5, "running", 1)],
    "calls that overlap": [run("start", 0, "running", 1), run("get", 0.5, "starting", 1)],
    "too late to extend": [run("start", 0, "running", 1), run("extend", 2, code="NOT_RUNNING")],
}
IMPOSSIBLE_RUNS = {
    "an attempt twice": [
        run("start", 0, "running", 1),
        run("stop", 2, "stopped", 1),
        run("get", 4, "running", 1),
    ],
    "an attempt that nobody started": [run("start", 0, "running", 2)],
    "an older attempt": [
        run("start", 0, "running", 1),
        run("start", 2, "running", 2),
        run("get", 4, "stopped", 1),
    ],
    "back from the dead": [run("recycle", 0, "recycled"), run("get", 2, "created")],
}
POSSIBLE_PREVIEWS = {
    "one after another": [
        shown("sync", 0, "running", "a"),
        shown("status", 2, "expired"),
        shown("sync", 4, "running", "b"),
    ],
    "it ended unseen": [shown("sync", 0, "running", "a"), shown("sync", 4, "running", "b")],
    "a lost answer": [lost("sync", 0), shown("status", 4, "running", "b")],
}
IMPOSSIBLE_PREVIEWS = {
    "back after another one": [
        shown("sync", 0, "running", "a"),
        shown("sync", 2, "running", "b"),
        shown("status", 4, "running", "a"),
    ],
    "running after its end": [
        shown("sync", 0, "running", "a"),
        shown("stop", 2, "expired"),
        shown("status", 4, "running", "a"),
    ],
}


@pytest.mark.parametrize("name", POSSIBLE_RUNS)
def test_an_order_of_runs_is_found(name: str) -> None:
    assert judge_runs(LifeHistory("platform", POSSIBLE_RUNS[name])) == []


@pytest.mark.parametrize("name", IMPOSSIBLE_RUNS)
def test_no_order_of_runs_explains(name: str) -> None:
    [problem] = judge_runs(LifeHistory("platform", IMPOSSIBLE_RUNS[name]))
    assert problem.startswith("no order explains the calls about one")


@pytest.mark.parametrize("name", POSSIBLE_PREVIEWS)
def test_an_order_of_previews_is_found(name: str) -> None:
    assert judge_previews(LifeHistory("previews", POSSIBLE_PREVIEWS[name])) == []


@pytest.mark.parametrize("name", IMPOSSIBLE_PREVIEWS)
def test_no_order_of_previews_explains(name: str) -> None:
    [problem] = judge_previews(LifeHistory("previews", IMPOSSIBLE_PREVIEWS[name]))
    assert problem.startswith("no order explains the calls about one")


def test_a_folder_is_judged_again_by_a_command(tmp_path: Path) -> None:
    history = LifeHistory("platform", [lost("start", 3), *IMPOSSIBLE_RUNS["an attempt twice"]])
    evidence = LifeEvidence(history, [])
    save(evidence, tmp_path)
    assert load(tmp_path) == evidence
    command = [sys.executable, "-m", "tests.histories", str(tmp_path)]
    judged = subprocess.run(command, capture_output=True, text=True, check=False)
    assert judged.returncode == 1
    assert judged.stdout.splitlines() == [*judge_runs(history), "4 calls, 1 problems"]

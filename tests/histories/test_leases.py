"""What the search finds in histories that were written by hand."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.history import Attempt, History
from tests.faults.pool_contents import Stock
from tests.histories.evidence import PoolEvidence, load, save
from tests.histories.judge import Limits, judge

START = 1000.0
END = 1009


def call(
    kind: str,
    begin: float,
    end: float,
    status: int | None,
    *,
    about: str = "",
    leased: str = "",
    key: str = "key",
    track: str = "track",
    expires_at: int = END,
    code: str = "",
    says: str = "",
) -> Attempt:
    body: dict[str, object] = {"error": {"code": code}} if code else {}
    if leased:
        body = {"sandbox_id": leased, "expires_at": expires_at, "status": says}
    return Attempt(kind, START + begin, START + end, status, track, key, about, body)


def claim(begin: float, end: float, status: int | None, leased: str = "") -> Attempt:
    return call("allocate", begin, end, status, leased=leased)


def problems(*attempts: Attempt, has_probes: bool = False) -> list[str]:
    return judge(History(list(attempts)), Limits(0.1, has_probes, most_extensions=1))


def exhausted(begin: float, end: float) -> Attempt:
    return call("allocate", begin, end, 409, code="NO_SANDBOXES_AVAILABLE")


POSSIBLE = {
    "a retry has the lease": [claim(0, 1, 201, "a"), claim(2, 3, 200, "a")],
    "a lost answer took effect": [claim(0, 1, None), claim(2, 3, 200, "a")],
    "a lost answer took no effect": [claim(0, 1, None), claim(2, 3, 201, "a")],
    "it took effect long after": [claim(0, 1, None), exhausted(2, 3), claim(4, 5, 200, "a")],
    "an overlapping retry": [claim(0, 3, 201, "a"), claim(1, 2, 200, "a")],
    "a new one after the end": [claim(0, 1, 201, "a"), claim(9.5, 10, 201, "b")],
    "a new one after a lost mark": [
        claim(0, 1, 201, "a"),
        call("mark", 2, 3, None, about="a"),
        claim(4, 5, 201, "b"),
    ],
    "an extension once per key": [
        claim(0, 1, 201, "a"),
        call("extend", 2, 3, 503, about="a", key="one"),
        call("extend", 4, 5, 200, about="a", key="one", leased="a", expires_at=END + 60),
    ],
    "a mark of the one before": [
        claim(0, 1, 201, "a"),
        call("replace", 2, 3, 200, about="a", leased="b"),
        call("mark", 4, 5, 200, about="a"),
        exhausted(6, 7),
    ],
}
IMPOSSIBLE = {
    "two sandboxes for one retry": [claim(0, 1, 201, "a"), claim(2, 3, 201, "b")],
    "a second one after a lost answer": [
        claim(0, 1, None),
        claim(2, 3, 200, "a"),
        claim(4, 5, 201, "b"),
    ],
    "a retry before anything": [claim(0, 1, 200, "a"), claim(2, 3, 201, "a")],
    "refused while it has one": [claim(0, 1, 201, "a"), exhausted(2, 3)],
    "back after its end": [
        claim(0, 1, 201, "a"),
        call("mark", 2, 3, 200, about="a"),
        claim(4, 5, 200, "a"),
    ],
    "read as live after its end": [
        claim(0, 1, 201, "a"),
        call("mark", 2, 3, 200, about="a"),
        call("get", 4, 5, 200, about="a", leased="a", says="allocated"),
    ],
    "ended without a reason": [
        claim(0, 1, 201, "a"),
        call("get", 2, 3, 200, about="a", leased="a", says="pending_deletion"),
    ],
    "extended twice for one key": [
        claim(0, 1, 201, "a"),
        call("extend", 2, 3, 200, about="a", key="one", leased="a", expires_at=END + 60),
        call("extend", 4, 5, 200, about="a", key="one", leased="a", expires_at=END + 120),
    ],
    "an extension that was forgotten": [
        claim(0, 1, 201, "a"),
        call("extend", 2, 3, 200, about="a", key="one", leased="a", expires_at=END + 60),
        claim(4, 5, 200, "a"),
    ],
    "an extension that is too long and its retry is not": [
        claim(0, 1, 201, "a"),
        call("extend", 2, 5, 200, about="a", key="one", leased="a", expires_at=END + 60),
        call("extend", 2, 5, 409, about="a", key="one", code="LEASE_TOO_LONG"),
    ],
    "a stranger's mark": [
        claim(0, 1, 201, "a"),
        call("mark", 2, 3, 200, about="a", track="stranger"),
    ],
    "replaced by two": [
        claim(0, 1, 201, "a"),
        call("replace", 2, 3, 200, about="a", leased="b"),
        call("replace", 4, 5, 200, about="a", leased="c"),
    ],
}


@pytest.mark.parametrize("name", POSSIBLE)
def test_an_order_is_found(name: str) -> None:
    assert problems(*POSSIBLE[name]) == []


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_no_order_explains(name: str) -> None:
    [problem] = problems(*IMPOSSIBLE[name])
    assert problem.startswith("no order explains the calls of ('track', 'key')")


def test_a_lease_that_fails_its_probe_may_be_refused() -> None:
    refused = IMPOSSIBLE["refused while it has one"]
    assert problems(*refused, has_probes=True) == []


def test_many_lost_answers_are_searched_in_moments() -> None:
    lost = [claim(n / 10, n / 10 + 0.05, None) for n in range(40)]
    told = [claim(5, 5.1, 200, "a"), claim(6, 6.1, 201, "b")]
    assert len(problems(*lost, *told)) == 1


def test_reads_and_refusals_at_once_are_searched_in_moments() -> None:
    ended = [claim(0, 1, 201, "a"), call("mark", 2, 3, 200, about="a")]
    refused = [call("extend", 4, 8, 403, about="a", code="ALLOCATION_EXPIRED") for _ in range(20)]
    read = [call("get", 4, 8, 200, about="a", leased="a", says="deleted") for _ in range(20)]
    assert problems(*ended, *refused, *read) == []
    [problem] = problems(*ended, *refused, *read, claim(8.5, 8.7, 200, "a"))
    assert problem.startswith("no order explains the calls of ('track', 'key')")


def test_a_folder_is_judged_again_by_a_command(tmp_path: Path) -> None:
    history = History(IMPOSSIBLE["two sandboxes for one retry"])
    evidence = PoolEvidence(history, Limits(0.1), Stock(), [], listed=[], read_at=START)
    save(evidence, tmp_path)
    assert load(tmp_path) == evidence
    command = [sys.executable, "-m", "tests.histories", str(tmp_path)]
    judged = subprocess.run(command, capture_output=True, text=True, check=False)
    assert judged.returncode == 1
    problems = evidence.problems()
    assert judge(history, Limits(0.1))[0] in problems
    assert judged.stdout.splitlines() == [*problems, f"2 calls, {len(problems)} problems"]

"""What is made of the runtime's word that a run has ended."""

from dataclasses import replace
from datetime import timedelta

import pytest

from sandyard.platform.sandboxes.model import Status
from sandyard.platform.sandboxes.runs.end_model import (
    StoredSnapshot,
    end_of,
    ended_by,
    failed_start,
    idle_reason,
    reason_of,
    stored_snapshot,
)
from sandyard.runtime.model import Ended, EndReason, RunId, Snapshot
from tests.unit.platform.sandboxes.examples import NOW, SANDBOX

DAY = timedelta(days=1)
ENDED = Ended(
    RunId("sandbox", "sbx-1", "2"),
    "stopped",
    ended_at=NOW.timestamp(),
    started_at=(NOW - DAY).timestamp(),
    snapshot=Snapshot("snap-1", 5, NOW.timestamp()),
)


def by_itself(reason: EndReason) -> Ended:
    return replace(ENDED, reason=reason, exit_code=3, error_code="CLONE_FAILED", message="why")


@pytest.mark.parametrize(
    ("reason", "status", "told"),
    [
        ("stopped", Status.STOPPED, "stopped by its owner"),
        ("timeout", Status.TIMEOUT, "it reached its deadline"),
        ("exited", Status.STOPPED, "its program ended with code 3"),
        ("out_of_memory", Status.STOPPED, "it exceeded its memory limit"),
        ("out_of_storage", Status.STOPPED, "it exceeded its storage limit"),
        ("terminated", Status.STOPPED, "its host terminated it, as in a shutdown"),
        ("killed", Status.STOPPED, "its processes were killed"),
        ("not_started", Status.STOPPED, "CLONE_FAILED: why"),
    ],
)
def test_each_end_has_its_status_and_a_reason(reason: EndReason, status: Status, told: str) -> None:
    end = end_of(by_itself(reason), attempt=2, reason=None, retention=DAY)
    assert (end.attempt, end.status, end.reason) == (2, status, told)
    assert (end.started_at, end.ended_at) == (NOW - DAY, NOW)
    assert end.has_run == end.leaves_files == (reason != "not_started")
    assert end.by_owner == (reason == "stopped")


def test_a_start_that_was_lost_with_its_server_costs_nothing() -> None:
    lost = replace(by_itself("not_started"), error_code="SUPERVISOR_LOST")
    assert end_of(lost, attempt=2, reason=None, retention=DAY).started_at is None


def test_who_stopped_it_for_a_reason_is_not_its_owner() -> None:
    end = end_of(ENDED, attempt=2, reason="its account was deactivated", retention=DAY)
    assert (end.reason, end.by_owner) == ("its account was deactivated", False)
    timeout = end_of(by_itself("timeout"), attempt=2, reason="too late", retention=DAY)
    assert (timeout.reason, timeout.by_owner) == ("it reached its deadline", False)


@pytest.mark.parametrize(
    ("reason", "actor"), [("stopped", "account:1"), ("timeout", "system"), ("killed", "system")]
)
def test_what_ended_by_itself_is_nobodys_deed(reason: EndReason, actor: str) -> None:
    assert ended_by(by_itself(reason), recorder="account:1") == actor


def test_a_snapshot_is_kept_from_the_end_on() -> None:
    assert stored_snapshot(ENDED, retention=DAY) == StoredSnapshot("snap-1", 5, NOW + DAY)
    assert stored_snapshot(replace(ENDED, snapshot=None), retention=DAY) is None
    without = end_of(
        replace(ENDED, started_at=None, snapshot=None), attempt=2, reason=None, retention=DAY
    )
    assert (without.snapshot, without.started_at) == (None, None)


def test_files_that_could_not_be_kept_are_told_and_a_long_reason_is_cut() -> None:
    told = reason_of(replace(ENDED, snapshot_error="disk full"))
    assert told == "stopped by its owner; its files could not be stored: disk full"
    assert len(reason_of(replace(ENDED, snapshot_error="x" * 900))) == 500
    output = "Collecting flask\n" * 90 + "ModuleNotFoundError: No module named 'shop'"
    failed = replace(ENDED, reason="not_started", error_code="PROGRAM_FAILED", message=output)
    assert reason_of(failed).startswith("PROGRAM_FAILED: Collecting flask")
    assert reason_of(failed).endswith("ModuleNotFoundError: No module named 'shop'")
    assert len(reason_of(failed)) == 500
    unnamed = replace(by_itself("not_started"), error_code=None)
    assert reason_of(unnamed) == "START_FAILED: why"


def test_a_start_that_failed_left_nothing() -> None:
    end = failed_start(2, code="CLONE_FAILED", message="x" * 900, at=NOW)
    assert (end.status, end.ended_at, end.started_at) == (Status.STOPPED, NOW, None)
    assert (end.has_run, end.leaves_files, end.by_owner) == (False, False, False)
    assert end.reason.startswith("CLONE_FAILED: x")
    assert len(end.reason) == 500


@pytest.mark.parametrize(
    ("used_ago", "is_idle"),
    [(None, True), (timedelta(minutes=10), True), (timedelta(minutes=9, seconds=59), False)],
)
def test_it_is_idle_when_nobody_used_it_for_so_long(
    used_ago: timedelta | None, *, is_idle: bool
) -> None:
    begun_at = NOW - timedelta(minutes=10)
    sandbox = replace(
        SANDBOX,
        status=Status.RUNNING,
        started_at=begun_at,
        idle_stop_minutes=10,
        last_used_at=None if used_ago is None else NOW - used_ago,
    )
    assert (idle_reason(sandbox, now=NOW) is not None) is is_idle
    assert idle_reason(replace(sandbox, status=Status.STARTING), now=NOW) is None
    assert idle_reason(replace(sandbox, idle_stop_minutes=None), now=NOW) is None
    just_begun = replace(sandbox, started_at=NOW, last_used_at=begun_at)
    assert idle_reason(just_begun, now=NOW) is None

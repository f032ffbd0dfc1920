"""What begins and ends runs and snapshots, at the edges."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from sandyard.platform.notifications.model import NotificationType
from sandyard.platform.sandboxes.errors import SandboxBusyError
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.runs.end_model import End, StoredSnapshot
from sandyard.platform.sandboxes.runs.model import (
    LONGEST_START,
    Accounting,
    Started,
    count_storage,
    drop_snapshot,
    expire_snapshot,
    is_to_recycle,
    move_deadline,
    record_end,
    record_started,
    recycle_sandbox,
    released_from_node,
    request_recycling,
    uncounted_storage,
    warn_of_expiry,
)
from sandyard.platform.usage.model import Usage
from tests.unit.platform.sandboxes.examples import (
    IDS,
    NOW,
    OWNER,
    PRICES,
    SANDBOX,
    assert_told,
    by,
    kinds,
)

HOUR = timedelta(hours=1)
STARTING = replace(SANDBOX, status=Status.STARTING, attempt=2)
RUN = Started(2, "http://127.0.0.1:1", NOW, NOW + HOUR)
SNAPSHOT = StoredSnapshot("snap-2", 7 * 2**30, NOW + timedelta(days=30))
KEPT = replace(
    SANDBOX,
    status=Status.STOPPED,
    attempt=2,
    latest_snapshot_id="snap-1",
    snapshot_bytes=5 * 2**30,
    snapshot_taken_at=NOW - HOUR,
    snapshot_expires_at=NOW + HOUR,
    storage_counted_until=NOW - HOUR,
    expiry_told_at=NOW,
)


def started(sandbox: Sandbox = STARTING, run: Started = RUN) -> Any:
    return record_started(sandbox, run, Accounting(IDS, PRICES, by()))


def running(**changes: Any) -> tuple[Sandbox, Usage]:
    box, usage = started(replace(STARTING, **changes))
    return box.result, usage.result


def ended(sandbox: Sandbox, usage: Usage | None, **changes: Any) -> Any:
    end = End(2, Status.STOPPED, "its program ended with code 1", NOW + HOUR)
    return record_end(
        sandbox, usage, replace(end, **changes), Accounting(IDS, PRICES, by("system"))
    )


def test_a_start_opens_a_usage_at_the_rate_of_then() -> None:
    box, usage = started()
    assert kinds((box, usage)) == ["sandbox.started", "usage.opened"]
    assert (box.result.status, box.result.preview_url) == (Status.RUNNING, RUN.url)
    assert (box.result.started_at, box.result.timeout_at) == (NOW, NOW + HOUR)
    opened = usage.result
    assert (opened.start_time, opened.end_time, opened.is_billed) == (NOW, None, False)
    assert opened.hourly_rate == Decimal("0.060000")
    assert (opened.sandbox_id, opened.user_account_id) == ("sbx-1", OWNER)
    assert (opened.cpu, opened.memory_gb, opened.storage_gb) == (1, 1, 0)
    for each in (box, usage):
        assert_told(each)


@pytest.mark.parametrize("status", [each for each in Status if each is not Status.STARTING])
def test_only_what_is_starting_is_started(status: Status) -> None:
    assert started(replace(STARTING, status=status)) is None


@pytest.mark.parametrize("attempt", [1, 3])
def test_another_attempt_is_not_started(attempt: int) -> None:
    assert started(run=replace(RUN, attempt=attempt)) is None


def test_a_notification_of_an_end_has_one_full_stop() -> None:
    *_, notification = ended(*running(), reason="SUPERVISOR_LOST: It was lost. Start again.")
    assert notification.result.message.endswith("It was lost. Start again.")


def test_an_end_closes_the_usage_and_notifies_the_owner() -> None:
    transitions = ended(*running())
    assert kinds(transitions) == ["sandbox.stopped", "usage.closed", "notification.created"]
    box, usage, notification = (each.result for each in transitions)
    assert (box.status, box.preview_url) == (Status.STOPPED, None)
    assert box.status_reason == usage.end_reason == "its program ended with code 1"
    assert box.stopped_at == usage.end_time == NOW + HOUR
    assert (usage.cost, usage.running_seconds) == (Decimal("0.060000"), 3600)
    assert (usage.cpu_hours, usage.memory_hours, usage.storage_hours) == (1, 1, 0)
    assert notification.type is NotificationType.ERROR
    assert notification.related_entity_id == "sbx-1"
    assert {each.events[0].reason for each in transitions} == {box.status_reason}
    assert {each.events[0].actor for each in transitions} == {"system"}
    for each in transitions:
        assert_told(each)


def test_a_timeout_is_told_as_a_warning() -> None:
    transitions = ended(*running(), status=Status.TIMEOUT)
    assert kinds(transitions)[0] == "sandbox.timed_out"
    assert transitions[0].result.status is Status.TIMEOUT
    assert transitions[-1].result.type is NotificationType.WARNING


def test_an_owner_is_not_told_of_what_he_did() -> None:
    assert kinds(ended(*running(), by_owner=True)) == ["sandbox.stopped", "usage.closed"]


def test_a_start_that_fails_before_its_program_begins_has_no_usage() -> None:
    transitions = ended(STARTING, None, has_run=False)
    assert kinds(transitions) == ["sandbox.start_failed", "notification.created"]
    assert transitions[0].result.status is Status.STOPPED


def test_a_start_that_fails_is_paid_for_as_long_as_its_program_ran() -> None:
    began_at = NOW + HOUR - timedelta(seconds=25)
    transitions = ended(STARTING, None, has_run=False, started_at=began_at)
    assert kinds(transitions) == ["sandbox.start_failed", "usage.recorded", "notification.created"]
    usage = transitions[1].result
    assert (usage.start_time, usage.end_time) == (began_at, NOW + HOUR)
    assert (usage.running_seconds, usage.cost) == (25, Decimal("0.000417"))
    assert (usage.end_reason, usage.sequence) == ("its program ended with code 1", 1)
    for each in transitions:
        assert_told(each)


def test_a_run_that_nobody_recorded_costs_no_more_than_it_may_run() -> None:
    longest = STARTING.max_running_seconds
    began_at = NOW + HOUR - timedelta(seconds=longest + 5)
    usage = ended(STARTING, None, started_at=began_at)[1].result
    assert usage.running_seconds == longest


def test_a_run_that_ended_before_it_was_recorded_is_paid_for() -> None:
    box = replace(STARTING, latest_snapshot_id="snap-1", storage_counted_until=NOW - HOUR)
    transitions = ended(box, None, started_at=NOW, snapshot=SNAPSHOT)
    assert kinds(transitions)[:3] == ["sandbox.stopped", "usage.recorded", "usage.recorded"]
    run, storage = (each.result for each in transitions[1:3])
    assert (run.running_seconds, run.cost) == (3600, Decimal("0.060000"))
    assert run.usage_id != storage.usage_id


@pytest.mark.parametrize(
    "status", [Status.CREATED, Status.STOPPED, Status.TIMEOUT, Status.RECYCLED]
)
def test_what_is_not_active_does_not_end(status: Status) -> None:
    assert ended(replace(STARTING, status=status), None) is None


def test_another_attempt_does_not_end() -> None:
    assert ended(*running(), attempt=1) is None


def test_a_new_snapshot_replaces_the_one_before_and_that_is_paid_for() -> None:
    box, usage = running(
        latest_snapshot_id="snap-1",
        snapshot_bytes=5 * 2**30,
        storage_counted_until=NOW - HOUR,
        expiry_told_at=NOW,
    )
    transitions = ended(box, usage, snapshot=SNAPSHOT, by_owner=True)
    assert kinds(transitions) == ["sandbox.stopped", "usage.closed", "usage.recorded"]
    after, _, storage = (each.result for each in transitions)
    assert (after.latest_snapshot_id, after.snapshot_bytes) == ("snap-2", 7 * 2**30)
    assert (after.snapshot_taken_at, after.storage_counted_until) == (NOW + HOUR, NOW + HOUR)
    assert (after.snapshot_expires_at, after.expiry_told_at) == (SNAPSHOT.expires_at, None)
    assert (storage.start_time, storage.end_time) == (NOW - HOUR, NOW + HOUR)
    assert (storage.storage_gb, storage.storage_hours) == (5, 10)
    assert (storage.cost, storage.running_seconds) == (Decimal("0.001000"), 0)
    for each in transitions:
        assert_told(each)


def test_without_a_snapshot_the_one_before_stays() -> None:
    box, usage = running(latest_snapshot_id="snap-1", storage_counted_until=NOW - HOUR)
    after = ended(box, usage, by_owner=True)[0].result
    assert (after.latest_snapshot_id, after.storage_counted_until) == ("snap-1", NOW - HOUR)


def test_what_was_counted_beyond_a_late_end_is_not_counted_again() -> None:
    box, usage = running(latest_snapshot_id="snap-1", storage_counted_until=NOW + 2 * HOUR)
    transitions = ended(box, usage, snapshot=SNAPSHOT, by_owner=True)
    assert kinds(transitions) == ["sandbox.stopped", "usage.closed"]
    assert transitions[0].result.storage_counted_until == NOW + 2 * HOUR


@pytest.mark.parametrize("status", [Status.CREATED, Status.STOPPED, Status.TIMEOUT])
def test_recycling_gives_up_the_snapshot(status: Status) -> None:
    before = replace(KEPT, status=status)
    transitions = recycle_sandbox(before, Accounting(IDS, PRICES, by()))
    assert kinds(transitions) == ["sandbox.recycled", "usage.recorded"]
    box, usage = transitions or ()
    assert (box.result.status, box.result.recycled_at) == (Status.RECYCLED, NOW)
    assert box.result.latest_snapshot_id is box.result.storage_counted_until is None
    assert (usage.result.start_time, usage.result.end_time) == (NOW - HOUR, NOW)
    assert_told(box)


def test_recycling_what_never_ran_makes_no_usage() -> None:
    transitions = recycle_sandbox(SANDBOX, Accounting(IDS, PRICES, by()))
    assert kinds(transitions) == ["sandbox.recycled"]


def test_recycling_is_done_once_and_not_while_it_is_active() -> None:
    recycled = replace(KEPT, status=Status.RECYCLED)
    assert recycle_sandbox(recycled, Accounting(IDS, PRICES, by())) is None
    for status in (Status.STARTING, Status.RUNNING):
        with pytest.raises(SandboxBusyError):
            recycle_sandbox(replace(KEPT, status=status), Accounting(IDS, PRICES, by()))


def test_a_snapshot_is_dropped_unless_a_run_may_need_it() -> None:
    transitions = drop_snapshot(KEPT, Accounting(IDS, PRICES, by()))
    assert kinds(transitions) == ["snapshot.dropped", "usage.recorded"]
    [box, _] = transitions or ()
    assert (box.result.status, box.result.latest_snapshot_id) == (Status.STOPPED, None)
    assert_told(box)
    for none in (SANDBOX, replace(KEPT, status=Status.STARTING)):
        assert drop_snapshot(none, Accounting(IDS, PRICES, by())) is None


@pytest.mark.parametrize(
    ("expires_at", "is_expired"), [(NOW - HOUR, True), (NOW, True), (NOW + HOUR, False)]
)
def test_a_snapshot_expires_at_its_time(expires_at: datetime, is_expired: bool) -> None:
    box = replace(KEPT, snapshot_expires_at=expires_at)
    transitions = expire_snapshot(box, Accounting(IDS, PRICES, by("job:snapshots")))
    assert (transitions is not None) == is_expired
    if transitions:
        assert transitions[0].events[0].reason == "it expired"


@pytest.mark.parametrize(
    ("changes", "is_warned"),
    [
        ({}, True),
        ({"snapshot_expires_at": NOW + timedelta(days=1)}, True),
        ({"snapshot_expires_at": NOW + timedelta(days=1, seconds=1)}, False),
        ({"snapshot_expires_at": NOW}, False),
        ({"snapshot_expires_at": None}, False),
        ({"expiry_told_at": NOW}, False),
        ({"status": Status.RUNNING}, False),
    ],
)
def test_an_owner_is_warned_once_before_that(changes: dict[str, Any], is_warned: bool) -> None:
    box = replace(replace(KEPT, expiry_told_at=None), **changes)
    transitions = warn_of_expiry(
        box,
        warn_before=timedelta(days=1),
        accounting=Accounting(IDS, PRICES, by("job:snapshots")),
    )
    assert (transitions is not None) == is_warned
    if transitions:
        assert kinds(transitions) == ["snapshot.expiry_warned", "notification.created"]
        assert transitions[0].result.expiry_told_at == NOW
        assert_told(transitions[0])


def test_storage_is_counted_up_to_a_moment_once() -> None:
    transitions = count_storage(
        KEPT, until=NOW, accounting=Accounting(IDS, PRICES, by("job:billing"))
    )
    assert kinds(transitions) == ["snapshot.storage_counted", "usage.recorded"]
    box, usage = transitions or ()
    assert (box.result.storage_counted_until, usage.result.end_time) == (NOW, NOW)
    assert_told(box)
    for none in (box.result, SANDBOX, replace(KEPT, storage_counted_until=None)):
        assert count_storage(none, until=NOW, accounting=Accounting(IDS, PRICES, by())) is None


@pytest.mark.parametrize(
    ("before", "leaves_files", "node"),
    [
        ({"started_at": NOW - HOUR}, False, None),
        ({"started_at": NOW - HOUR}, True, "here"),
        ({}, False, "here"),
        ({"started_at": NOW - HOUR, "latest_snapshot_id": "snap-1"}, False, "here"),
    ],
)
def test_an_attempt_that_left_nothing_makes_its_node_hold_nothing(
    before: dict[str, Any], leaves_files: bool, node: str | None
) -> None:
    """What was given up before it is not looked for there; its snapshot and its logs are."""
    sandbox = replace(STARTING, node="here", **before)
    box, *_ = ended(sandbox, None, has_run=False, leaves_files=leaves_files)
    assert box.result.node == node
    assert_told(box)


def test_storage_that_is_on_no_usage_yet_is_what_was_kept_since_it_was_counted() -> None:
    def kept(sandbox: Sandbox, until: datetime) -> Usage | None:
        return uncounted_storage(sandbox, until=until, usage_id="usg-9", prices=PRICES)

    usage = kept(KEPT, NOW)
    assert usage is not None
    assert (usage.usage_id, usage.start_time, usage.end_time) == ("usg-9", NOW - HOUR, NOW)
    assert (usage.storage_gb, usage.cost) == (5, Decimal("0.000500"))
    assert kept(KEPT, NOW - HOUR) is None
    assert kept(SANDBOX, NOW) is None
    unknown = kept(replace(KEPT, snapshot_bytes=None), NOW)
    assert unknown is not None
    assert unknown.cost == 0


@pytest.mark.parametrize(("snapshot_node", "snapshot_id"), [(None, None), ("here", "snap-1")])
def test_what_a_node_has_is_given_up_unless_another_has_it_too(
    snapshot_node: str | None, snapshot_id: str | None
) -> None:
    left = released_from_node(replace(KEPT, node="there"), snapshot_node=snapshot_node)
    assert (left.node, left.latest_snapshot_id) == (snapshot_node, snapshot_id)
    assert (left.storage_counted_until is None) == (snapshot_node is None)


def test_a_deadline_moves_and_the_usage_counts_until_then() -> None:
    sandbox, usage = running()
    later = NOW + 2 * HOUR
    moved = move_deadline(sandbox, usage, attempt=2, deadline_at=later, cause=by())
    assert moved is not None
    assert kinds(moved) == ["sandbox.deadline_moved", "usage.deadline_moved"]
    assert moved[0].result.timeout_at == later
    assert moved[1].result.deadline_at == later
    again = move_deadline(moved[0].result, usage, attempt=2, deadline_at=later, cause=by())
    assert again is None


def test_the_deadline_of_what_has_ended_does_not_move() -> None:
    sandbox, usage = running()
    for other, attempt in ((replace(sandbox, status=Status.STOPPED), 2), (sandbox, 1)):
        later = NOW + 2 * HOUR
        assert move_deadline(other, usage, attempt=attempt, deadline_at=later, cause=by()) is None


@pytest.mark.parametrize(
    ("changes", "is_over"),
    [
        ({"status": Status.TIMEOUT}, True),
        ({"status": Status.TIMEOUT, "recycle_on_timeout": False}, False),
        ({"status": Status.STOPPED, "timeout_at": NOW}, True),
        ({"status": Status.STOPPED, "timeout_at": NOW + HOUR}, False),
        ({"status": Status.STOPPED, "timeout_at": None}, False),
        ({"status": Status.RUNNING, "timeout_at": NOW - HOUR}, False),
        ({"status": Status.RECYCLED, "timeout_at": NOW}, False),
        ({"created_at": NOW - HOUR - LONGEST_START}, True),
        ({"created_at": NOW - HOUR}, False),
    ],
)
def test_one_that_nobody_wants_to_keep_is_recycled_when_its_time_is_over(
    changes: dict[str, Any], is_over: bool
) -> None:
    sandbox = replace(SANDBOX, recycle_on_timeout=True, max_running_seconds=3600)
    assert is_to_recycle(replace(sandbox, **changes), now=NOW) is is_over


def test_a_requested_recycling_outlives_the_call() -> None:
    """The program is stopped, and what stopped it is recorded by a job."""
    sandbox, usage = running()
    requested = request_recycling(sandbox, by())
    assert requested is not None
    assert request_recycling(requested.result, by("x", NOW + HOUR)) is None
    end = End(2, Status.STOPPED, "stopped by its owner", NOW + HOUR / 2, by_owner=True)
    ended = record_end(
        requested.result, usage, end, Accounting(IDS, PRICES, by("job:ends", NOW + HOUR))
    )
    assert ended is not None
    assert is_to_recycle(ended[0].result, now=NOW + HOUR)
    paused = record_end(sandbox, usage, end, Accounting(IDS, PRICES, by()))
    assert paused is not None
    assert not is_to_recycle(replace(paused[0].result, recycle_on_timeout=True), now=NOW + HOUR)


def test_a_start_that_failed_leaves_a_deadline_to_one_that_is_not_kept() -> None:
    starting = replace(STARTING, recycle_on_timeout=True, max_running_seconds=60)
    end = End(2, Status.STOPPED, "lost", NOW, has_run=False)
    failed = record_end(starting, None, end, Accounting(IDS, PRICES, by()))
    assert failed is not None
    assert failed[0].result.timeout_at == NOW + timedelta(seconds=60)

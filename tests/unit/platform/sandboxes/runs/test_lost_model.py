"""What becomes of runs that their node does not tell of any more, at the edges."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from sandyard.platform.sandboxes.errors import SandboxElsewhereError
from sandyard.platform.sandboxes.model import Sandbox, Status, require_files_here
from sandyard.platform.sandboxes.runs.end_model import StoredSnapshot
from sandyard.platform.sandboxes.runs.lost_model import (
    PastRun,
    cap_ended,
    cap_unreported,
    deadline_of,
    end_lost,
    end_overdue,
    is_last_run,
    last_seen_of,
    recover_snapshot,
    release_run,
)
from sandyard.platform.sandboxes.runs.model import (
    LONGEST_START,
    Accounting,
    Started,
    record_started,
)
from sandyard.platform.usage.model import Usage
from sandyard.runtime.model import Ended, RunId
from tests.unit.platform.sandboxes.examples import (
    IDS,
    NOW,
    PRICES,
    SANDBOX,
    assert_told,
    by,
    kinds,
)

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
DEADLINE = NOW + HOUR
STARTING = replace(SANDBOX, status=Status.STARTING, attempt=2, node="there", last_seen_at=NOW)
STOPPED = replace(STARTING, status=Status.STOPPED, started_at=NOW - HOUR, stopped_at=NOW)
RUN = PastRun(attempt=2, started_at=NOW - HOUR)
SNAPSHOT = StoredSnapshot("snap-2", 7 * 10**9, NOW + 2 * HOUR)


def running(seen_at: datetime | None) -> tuple[Sandbox, Usage]:
    run = Started(2, "http://127.0.0.1:1", NOW, DEADLINE)
    transitions = record_started(STARTING, run, Accounting(IDS, PRICES, by()))
    assert transitions is not None
    box, usage = transitions
    return replace(box.result, last_seen_at=seen_at), usage.result


def overdue(sandbox: Sandbox, usage: Usage | None, now: datetime) -> Any:
    cause = by("job:ends", now)
    return end_overdue(sandbox, usage, silent_for=MINUTE, accounting=Accounting(IDS, PRICES, cause))


@pytest.mark.parametrize(
    ("seen_at", "now", "is_ended"),
    [
        (NOW, DEADLINE - MINUTE, False),
        (NOW, DEADLINE, True),
        (DEADLINE, DEADLINE + MINUTE / 2, False),
        (DEADLINE, DEADLINE + MINUTE, True),
        (None, DEADLINE - MINUTE, False),
        (None, DEADLINE, True),
    ],
)
def test_only_silence_beyond_the_deadline_ends_a_run(
    seen_at: datetime | None, now: datetime, is_ended: bool
) -> None:
    assert (overdue(*running(seen_at), now) is not None) == is_ended


def test_a_start_that_was_not_seen_is_not_judged_by_an_earlier_run() -> None:
    begun_at = NOW + 100 * HOUR
    sandbox = replace(STARTING, started_at=NOW, last_seen_at=None, updated_at=begun_at)
    assert last_seen_of(sandbox) == begun_at
    assert overdue(sandbox, None, begun_at + MINUTE) is None


@pytest.mark.parametrize(
    ("seen_at", "ended_at", "status", "kind"),
    [
        (NOW + MINUTE, NOW + MINUTE, Status.STOPPED, "sandbox.stopped"),
        (DEADLINE + MINUTE, DEADLINE, Status.TIMEOUT, "sandbox.timed_out"),
        (None, NOW, Status.STOPPED, "sandbox.stopped"),
    ],
)
def test_it_ended_when_it_was_last_seen_or_at_its_deadline(
    seen_at: datetime | None, ended_at: datetime, status: Status, kind: str
) -> None:
    transitions = overdue(*running(seen_at), DEADLINE + HOUR)
    assert kinds(transitions) == [kind, "usage.closed", "notification.created"]
    box, usage, _ = (each.result for each in transitions)
    assert (box.status, box.stopped_at, usage.end_time) == (status, ended_at, ended_at)
    assert box.node == "there", "it may come back with the files"
    assert "its node there has been silent since 20" in box.status_reason
    assert {each.events[0].reason for each in transitions} == {box.status_reason}
    for each in transitions:
        assert_told(each)


def test_a_start_on_a_silent_node_may_have_become_a_run_of_full_length() -> None:
    latest = NOW + HOUR + LONGEST_START
    assert overdue(STARTING, None, latest - MINUTE) is None
    transitions = overdue(STARTING, None, latest)
    assert kinds(transitions) == ["sandbox.start_failed", "notification.created"]
    assert transitions[0].result.status is Status.STOPPED


def test_what_was_lost_on_its_own_node_ended_when_it_was_last_seen() -> None:
    sandbox, usage = running(NOW + MINUTE)
    cause = by("job:ends", NOW + 9 * HOUR)
    transitions = end_lost(sandbox, usage, asked=sandbox, accounting=Accounting(IDS, PRICES, cause))
    assert kinds(transitions)[:2] == ["sandbox.stopped", "usage.closed"]
    assert (transitions or ())[1].result.end_time == NOW + MINUTE


@pytest.mark.parametrize("asked", [STARTING, replace(SANDBOX, status=Status.RUNNING, attempt=1)])
def test_what_was_started_since_its_node_did_not_know_it_is_not_lost(asked: Sandbox) -> None:
    accounting = Accounting(IDS, PRICES, by("job:ends", NOW + HOUR))
    assert end_lost(*running(NOW), asked=asked, accounting=accounting) is None


@pytest.mark.parametrize(
    ("times", "seen_at"),
    [
        ({"last_seen_at": NOW + MINUTE, "started_at": NOW}, NOW + MINUTE),
        ({"last_seen_at": None, "started_at": NOW, "status": Status.RUNNING}, NOW),
        ({"last_seen_at": None, "started_at": None}, STARTING.updated_at),
    ],
)
def test_its_start_is_a_sign_of_life_too(times: dict[str, Any], seen_at: datetime) -> None:
    assert last_seen_of(replace(STARTING, **times)) == seen_at


def test_the_deadline_of_a_start_that_may_have_worked_is_that_of_the_longest_run() -> None:
    assert deadline_of(running(NOW)[0]) == DEADLINE
    assert deadline_of(replace(STARTING, timeout_at=DEADLINE)) == NOW + HOUR + LONGEST_START
    unlimited = replace(running(NOW)[0], timeout_at=None)
    assert deadline_of(unlimited) == NOW + HOUR + LONGEST_START


@pytest.mark.parametrize("seen_at", [NOW + MINUTE, None])
def test_what_a_node_runs_that_reports_elsewhere_counts_until_it_was_seen(
    seen_at: datetime | None,
) -> None:
    transitions = cap_unreported(*running(seen_at), node="here", cause=by("system"))
    assert kinds(transitions) == ["usage.capped"]
    [capped] = transitions or ()
    assert capped.result.deadline_at == (seen_at or NOW)
    assert capped.events[0].reason == "its node there does not report here"
    assert_told(capped)
    sandbox, _ = running(seen_at)
    assert cap_unreported(sandbox, capped.result, node="here", cause=by("system")) is None


def test_what_this_node_runs_or_has_no_usage_is_not_capped() -> None:
    assert cap_unreported(*running(NOW), node="there", cause=by("system")) is None
    assert cap_unreported(STARTING, None, node="here", cause=by("system")) is None
    assert cap_unreported(*running(DEADLINE), node="here", cause=by("system")) is None


def ended(at: datetime) -> Ended:
    return Ended(RunId("sandbox", SANDBOX.sandbox_id, "2"), "exited", at.timestamp())


def test_a_machine_that_has_ended_costs_nothing_while_its_files_are_not_stored() -> None:
    sandbox, usage = running(NOW + MINUTE)
    transitions = cap_ended(sandbox, usage, ended=ended(NOW + MINUTE), cause=by("job:ends"))
    assert kinds(transitions) == ["usage.capped"]
    [capped] = transitions or ()
    assert capped.result.deadline_at == NOW + MINUTE
    assert capped.events[0].reason == "its machine has ended"
    assert_told(capped)
    again = cap_ended(sandbox, capped.result, ended=ended(NOW + MINUTE), cause=by("job:ends"))
    assert again is None


def test_the_end_of_an_earlier_machine_caps_nothing() -> None:
    sandbox, usage = running(NOW)
    assert cap_ended(sandbox, usage, ended=ended(NOW - MINUTE), cause=by("job:ends")) is None
    assert cap_ended(STARTING, None, ended=ended(NOW), cause=by("job:ends")) is None


def given_up(
    sandbox: Sandbox, usage: Usage | None = None, *, snapshot_node: str | None = None
) -> Any:
    return release_run(
        sandbox,
        usage,
        reason="its machine burned",
        snapshot_node=snapshot_node,
        silent_for=MINUTE,
        accounting=Accounting(IDS, PRICES, by("account:900000000000", NOW + 2 * MINUTE)),
    )


def test_an_admin_ends_it_before_its_deadline_and_its_node_is_not_waited_for() -> None:
    transitions = given_up(*running(NOW + MINUTE))
    assert kinds(transitions) == ["sandbox.stopped", "usage.closed", "notification.created"]
    box, usage, _ = (each.result for each in transitions)
    assert (box.node, box.status_reason) == (None, "its machine burned")
    assert usage.end_time == NOW + MINUTE
    require_files_here(box, node="here", has_snapshot=False)
    assert given_up(box) is None


def test_what_has_ended_is_given_up_by_its_node_alone() -> None:
    [transition] = given_up(STOPPED)
    assert transition.events[0].kind == "sandbox.released"
    assert transition.events[0].reason == "its machine burned"
    assert transition.result.node is None
    assert_told(transition)
    assert given_up(replace(STOPPED, status=Status.RECYCLED)) is None


KEPT: dict[str, Any] = {
    "latest_snapshot_id": "snap-1",
    "snapshot_bytes": 10**9,
    "snapshot_taken_at": NOW,
    "snapshot_expires_at": NOW + HOUR,
    "storage_counted_until": NOW,
}


@pytest.mark.parametrize("status", [Status.STOPPED, Status.RUNNING])
def test_the_snapshot_of_the_node_is_given_up_and_costs_no_more(status: Status) -> None:
    sandbox = replace(STOPPED, status=status, **KEPT)
    transitions = given_up(sandbox)
    assert "usage.recorded" in kinds(transitions)
    box, usage = (each.result for each in transitions[:2])
    assert (box.node, box.latest_snapshot_id, box.storage_counted_until) == (None, None, None)
    assert (usage.start_time, usage.end_time) == (NOW, NOW + 2 * MINUTE)
    require_files_here(box, node="here", has_snapshot=False)
    found = kinds(recovered(box))
    assert found == ["snapshot.recovered", "notification.created"], "unless it is started before"
    assert given_up(box) is None
    for each in transitions:
        assert_told(each)


@pytest.mark.parametrize("status", [Status.STOPPED, Status.RUNNING])
def test_a_snapshot_that_is_here_too_is_not_given_up(status: Status) -> None:
    transitions = given_up(replace(STOPPED, status=status, **KEPT), snapshot_node="here")
    assert "usage.recorded" not in kinds(transitions)
    box = transitions[0].result
    assert (box.node, box.latest_snapshot_id) == ("here", "snap-1")


def test_one_that_was_released_with_a_snapshot_that_nobody_has_gives_it_up_too() -> None:
    released = replace(STOPPED, node=None, **KEPT)
    assert kinds(given_up(released)) == ["sandbox.released", "usage.recorded"]
    assert given_up(released, snapshot_node="here") is None


@pytest.mark.parametrize("status", [Status.STOPPED, Status.RUNNING])
def test_a_node_that_gives_signs_of_life_is_not_given_up(status: Status) -> None:
    seen = replace(STOPPED, status=status, last_seen_at=NOW + MINUTE + timedelta(seconds=1))
    with pytest.raises(SandboxElsewhereError) as caught:
        given_up(seen)
    assert caught.value.details == {"node": "there"}


@pytest.mark.parametrize(
    ("changes", "has_snapshot", "is_here"),
    [
        ({"started_at": None}, False, True),
        ({}, False, False),
        ({"node": "here"}, False, True),
        ({"node": None}, False, True),
        ({"latest_snapshot_id": "snap-2", "snapshot_taken_at": NOW}, True, True),
        ({"latest_snapshot_id": "snap-2", "snapshot_taken_at": NOW}, False, False),
        ({"latest_snapshot_id": "snap-1", "snapshot_taken_at": NOW - 2 * HOUR}, True, False),
    ],
)
def test_a_start_needs_the_files_that_another_node_may_have(
    changes: dict[str, Any], has_snapshot: bool, is_here: bool
) -> None:
    sandbox = replace(STOPPED, **changes)
    if is_here:
        require_files_here(sandbox, node="here", has_snapshot=has_snapshot)
        return
    with pytest.raises(SandboxElsewhereError) as caught:
        require_files_here(sandbox, node="here", has_snapshot=has_snapshot)
    assert caught.value.details == {"node": "there"}


@pytest.mark.parametrize(
    ("run", "changes", "is_last"),
    [
        (RUN, {}, True),
        (replace(RUN, started_at=None), {}, True),
        (RUN, {"status": Status.RECYCLED}, False),
        (replace(RUN, attempt=1, started_at=None), {}, False),
        (replace(RUN, attempt=1), {}, True),
        (replace(RUN, attempt=1), {"started_at": None}, True),
        (replace(RUN, attempt=1), {"started_at": NOW}, False),
    ],
)
def test_a_run_is_the_last_one_if_no_later_attempt_ran(
    run: PastRun, changes: dict[str, Any], is_last: bool
) -> None:
    assert is_last_run(run, replace(STOPPED, **changes)) == is_last


def recovered(sandbox: Sandbox, **changes: Any) -> Any:
    known: dict[str, Any] = {"snapshot": SNAPSHOT, "run": RUN, "taken_at": NOW, "node": "there"}
    means = {"accounting": Accounting(IDS, PRICES, by("job:reconcile", NOW + HOUR))}
    return recover_snapshot(sandbox, **known | means | changes)


def test_files_that_come_to_light_are_kept_and_cost_from_then_on() -> None:
    before = replace(
        STOPPED, node=None, latest_snapshot_id="snap-1", storage_counted_until=NOW - HOUR
    )
    transitions = recovered(before)
    assert kinds(transitions) == ["snapshot.recovered", "usage.recorded", "notification.created"]
    box, usage, notification = (each.result for each in transitions)
    assert notification.type == "success"
    assert (box.latest_snapshot_id, box.node) == ("snap-2", "there")
    assert (box.snapshot_taken_at, box.storage_counted_until) == (NOW, NOW + HOUR)
    assert (usage.start_time, usage.end_time) == (NOW - HOUR, NOW + HOUR)
    assert box.has_all_files_stored
    for each in transitions:
        assert_told(each)


def test_files_that_were_changed_after_the_run_are_not_replaced_by_those_of_the_run() -> None:
    later = replace(STOPPED, latest_snapshot_id="snap-3", snapshot_taken_at=NOW + MINUTE)
    assert recovered(later) is None


def test_attempts_that_only_failed_do_not_hinder_that_files_are_recovered() -> None:
    for failed in (replace(STOPPED, attempt=4), replace(STOPPED, attempt=4, started_at=None)):
        assert kinds(recovered(failed)) == ["snapshot.recovered", "notification.created"]
    really_started = replace(STOPPED, attempt=4, started_at=NOW)
    assert recovered(really_started) is None


@pytest.mark.parametrize(
    ("sandbox", "changes"),
    [
        (STARTING, {}),
        (replace(STOPPED, status=Status.RECYCLED), {}),
        (STOPPED, {"run": replace(RUN, attempt=1, started_at=None)}),
        (STOPPED, {"run": replace(RUN, attempt=1, started_at=NOW - 2 * HOUR)}),
        (replace(STOPPED, latest_snapshot_id="snap-2"), {}),
        (STOPPED, {"snapshot": replace(SNAPSHOT, expires_at=NOW + HOUR)}),
    ],
)
def test_files_that_are_known_or_not_needed_are_not_recovered(
    sandbox: Sandbox, changes: dict[str, Any]
) -> None:
    assert recovered(sandbox, **changes) is None

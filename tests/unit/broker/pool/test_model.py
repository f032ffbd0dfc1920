"""Each decision about a sandbox at its edges: what it changes, what it tells, when it refuses."""

from dataclasses import replace

import pytest

from sandyard.broker.pool.action_model import Action, decide_action
from sandyard.broker.pool.errors import (
    AllocationExpiredError,
    NotSandboxOwnerError,
    SandboxNotFoundError,
    TransitionNotAllowedError,
)
from sandyard.broker.pool.model import (
    TOMBSTONE_SECONDS,
    Claim,
    Lease,
    Sandbox,
    Status,
    Tombstone,
    decide_claim,
    decide_expiry,
    decide_mark,
    decide_superseded,
    is_overdue,
    lab_seconds,
    owned_by,
)
from sandyard.broker.pool.provider_model import decide_deleted
from tests.unit.broker.rows import FREE, HOUR, LEASED, NOW, PENDING, STALE, cause, told


def test_a_lease_is_live_before_its_end_and_not_at_it() -> None:
    lease = Lease("id", "name", "ext", NOW, NOW + 10)
    assert lease.is_live(NOW + 9)
    assert not lease.is_live(NOW + 10)


@pytest.mark.parametrize(("hours", "seconds"), [(4, 14400), (0.5, 1800), (0.0001, 0), (1.5, 5400)])
def test_hours_take_decimals(hours: float, seconds: int) -> None:
    assert lab_seconds(hours) == seconds


def test_a_sandbox_is_overdue_at_the_instant_its_grace_ends() -> None:
    sandbox = Sandbox("id", "name", "ext", Status.ALLOCATED, 1, NOW, NOW, NOW)
    end = NOW + 3600
    assert not is_overdue(sandbox, grace_sec=60, now=end + 59)
    assert is_overdue(sandbox, grace_sec=60, now=end + 60)


def test_a_free_sandbox_is_never_overdue() -> None:
    assert FREE.expires_at is None
    assert not is_overdue(FREE, grace_sec=0, now=NOW * 10)


def test_a_claim_leases_the_sandbox_and_its_event_has_that_and_its_names() -> None:
    claimed = decide_claim(FREE, Claim("t", "k", NOW + 1, at_ms=NOW * 1000 + 1234))
    [event] = claimed.events
    assert event.data == {
        "status": "allocated",
        "allocated_to_track": "t",
        "idempotency_key": "k",
        "allocated_at": NOW + 1,
        "ends_at": NOW + 1 + HOUR,
        "updated_at": NOW + 1,
        "name": "lab",
        "external_id": "e1",
    }
    assert (event.actor, event.at_ms) == ("track:t", NOW * 1000 + 1234)
    assert claimed.result.lease.expires_at == NOW + 1 + HOUR
    assert claimed.result.sequence == FREE.sequence + 1


def test_a_claim_may_say_how_long_its_lease_lasts() -> None:
    lease = decide_claim(FREE, Claim("t", "k", NOW, lease_sec=90)).result.lease
    assert lease.expires_at == NOW + 90


def test_a_lease_from_before_ends_were_stored_lasts_as_long_as_its_lab() -> None:
    old = replace(LEASED, ends_at=None)
    assert old.expires_at == old.lease.expires_at == NOW + HOUR


def test_only_the_lease_of_the_same_key_is_superseded() -> None:
    ended = decide_superseded(LEASED, Claim("t", "k", NOW + HOUR))
    assert ended is not None
    assert told(ended) == ("lease.ended", "track:t", "superseded by a new lease of the same key")
    assert ended.result.status is Status.PENDING_DELETION
    for row, claim in (
        (LEASED, Claim("t", "other", NOW)),
        (LEASED, Claim("other", "k", NOW)),
        (PENDING, Claim("t", "k", NOW)),
    ):
        assert decide_superseded(row, claim) is None


def test_a_mark_is_in_time_before_the_end_and_not_at_it() -> None:
    ended = decide_mark(LEASED, track_id="t", cause=cause(NOW + HOUR - 1, "track:t"))
    assert ended is not None
    assert told(ended) == ("lease.ended", "track:t", "released by its track")
    with pytest.raises(AllocationExpiredError):
        decide_mark(LEASED, track_id="t", cause=cause(NOW + HOUR))
    with pytest.raises(NotSandboxOwnerError):
        decide_mark(LEASED, track_id="other", cause=cause())
    with pytest.raises(SandboxNotFoundError):
        decide_mark(None, track_id="t", cause=cause())
    assert decide_mark(PENDING, track_id="t", cause=cause(NOW + 9 * HOUR)) is None


def test_a_tombstone_is_known_to_its_track_until_its_time_is_over() -> None:
    stone = decide_deleted(PENDING, cause()).after
    assert isinstance(stone, Tombstone)
    assert decide_mark(stone, track_id="t", cause=cause(NOW + TOMBSTONE_SECONDS - 1)) is None
    for track, now in (("t", NOW + TOMBSTONE_SECONDS), ("other", NOW)):
        with pytest.raises(SandboxNotFoundError):
            decide_mark(stone, track_id=track, cause=cause(now))


@pytest.mark.parametrize(
    ("row", "action", "kind", "reason", "status"),
    [
        (FREE, Action.QUARANTINE, "sandbox.quarantined", None, Status.STALE),
        (STALE, Action.RESTORE, "sandbox.restored", None, Status.AVAILABLE),
        (
            LEASED,
            Action.RELEASE,
            "lease.ended",
            "released by an operator",
            Status.PENDING_DELETION,
        ),
        (
            STALE,
            Action.RELEASE,
            "deletion.requested",
            "released by an operator",
            Status.PENDING_DELETION,
        ),
        (
            replace(PENDING, status=Status.DELETION_FAILED, deletion_retry_count=3),
            Action.RETRY_DELETION,
            "deletion.requested",
            "retried by an operator",
            Status.PENDING_DELETION,
        ),
    ],
)
def test_an_operator_s_action(
    row: Sandbox, action: Action, kind: str, reason: str | None, status: Status
) -> None:
    done = decide_action(row, action, cause())
    assert told(done) == (kind, "operator", reason)
    assert done.result.status is status
    assert done.result.deletion_retry_count == 0


@pytest.mark.parametrize("action", list(Action))
def test_an_action_that_the_state_does_not_allow_is_refused(action: Action) -> None:
    with pytest.raises(TransitionNotAllowedError):
        decide_action(PENDING, action, cause())
    with pytest.raises(SandboxNotFoundError):
        decide_action(None, action, cause())


def test_expiry_is_due_when_lab_and_grace_are_over() -> None:
    assert decide_expiry(LEASED, grace_sec=60, cause=cause(NOW + HOUR + 59)) is None
    ended = decide_expiry(LEASED, grace_sec=60, cause=cause(NOW + HOUR + 60, "job:expiry"))
    assert ended is not None
    assert told(ended) == ("lease.ended", "job:expiry", "expired")
    assert decide_expiry(PENDING, grace_sec=0, cause=cause(NOW + 9 * HOUR)) is None


def test_a_sandbox_is_owned_by_the_track_that_has_it_or_had_it_last() -> None:
    assert owned_by(LEASED, "t") is LEASED
    assert owned_by(PENDING, "t") is PENDING
    for row, track in ((LEASED, "other"), (FREE, "t"), (STALE, "t")):
        with pytest.raises(NotSandboxOwnerError):
            owned_by(row, track)
    for nothing in (None, decide_deleted(PENDING, cause()).result):
        with pytest.raises(SandboxNotFoundError):
            owned_by(nothing, "t")

"""Each decision about a sandbox: what it changes, what it tells, and when it refuses."""

from dataclasses import replace

import pytest

from sandyard.broker.errors import (
    AllocationExpiredError,
    NotSandboxOwnerError,
    SandboxNotFoundError,
    TransitionNotAllowedError,
)
from sandyard.broker.model import (
    TOMBSTONE_SECONDS,
    Action,
    Claim,
    DeletionPolicy,
    Listed,
    Sandbox,
    StaleReason,
    Status,
    Tombstone,
    decide_action,
    decide_claim,
    decide_deleted,
    decide_discovery,
    decide_expiry,
    decide_failed_deletion,
    decide_listing,
    decide_mark,
    decide_superseded,
)
from sandyard.kit.events import Effect
from sandyard.kit.transitions import Cause, Transition, state_of

NOW = 1_000_000
HOUR = 3600


def cause(now: int = NOW, actor: str = "operator") -> Cause:
    return Cause(actor, now * 1000 + 999)


def told(transition: Transition[Sandbox]) -> tuple[str, str, str | None]:
    [event] = transition.events
    return event.kind, event.actor, event.reason


FREE = decide_discovery(Listed("e1", "lab"), lab_duration_hours=1, cause=cause()).result
LEASED = decide_claim(FREE, Claim("t", "k", NOW, track_name="intro")).result
PENDING = decide_action(LEASED, Action.RELEASE, cause()).result
STALE = decide_action(FREE, Action.QUARANTINE, cause()).result


def test_a_discovered_sandbox_counts_from_the_time_on() -> None:
    found = decide_discovery(Listed("e1", "lab"), lab_duration_hours=1, cause=cause(NOW + 5))
    assert found.before is None
    assert found.result.sequence == NOW + 5
    assert found.result.created_at == found.result.last_synced == NOW + 5
    [event] = found.events
    assert (event.kind, event.effect) == ("sandbox.discovered", Effect.FULL)
    assert "last_synced" not in event.data


def test_a_claim_leases_the_sandbox_and_tells_only_that() -> None:
    claimed = decide_claim(FREE, Claim("t", "k", NOW + 1, at_ms=NOW * 1000 + 1234))
    [event] = claimed.events
    assert event.data == {
        "status": "allocated",
        "allocated_to_track": "t",
        "idempotency_key": "k",
        "allocated_at": NOW + 1,
        "updated_at": NOW + 1,
    }
    assert (event.actor, event.at_ms) == ("track:t", NOW * 1000 + 1234)
    assert claimed.result.lease.expires_at == NOW + 1 + HOUR
    assert claimed.result.sequence == FREE.sequence + 1


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
    assert told(ended) == ("lease.ended", "track:t", "given up by its track")
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


LISTED = Listed("e1", "lab")
RENAMED = Listed("e1", "aws")


def test_a_list_makes_missing_what_is_free_and_brings_back_what_was_missing() -> None:
    missing = decide_listing(FREE, None, cause=cause())
    assert missing is not None
    assert missing.events[0].kind == "sandbox.missing"
    assert missing.result.stale_reason is StaleReason.MISSING
    back = decide_listing(missing.result, RENAMED, cause=cause(NOW + 7))
    assert back is not None
    assert back.events[0].kind == "sandbox.restored"
    assert (back.result.status, back.result.last_synced) == (Status.AVAILABLE, NOW + 7)
    assert (back.result.name, back.result.stale_reason) == ("aws", None)
    for row, listed in (
        (FREE, LISTED),
        (missing.result, None),
        (STALE, LISTED),
        (STALE, None),
        (LEASED, None),
        (PENDING, None),
    ):
        assert decide_listing(row, listed, cause=cause()) is None


@pytest.mark.parametrize("row", [FREE, STALE], ids=["free", "quarantined"])
def test_a_list_renames_what_nobody_has(row: Sandbox) -> None:
    renamed = decide_listing(row, RENAMED, cause=cause(NOW + 7, "job:sync"))
    assert renamed is not None
    assert told(renamed) == ("sandbox.renamed", "job:sync", None)
    assert renamed.events[0].data == {"name": "aws", "updated_at": NOW + 7}
    assert (renamed.result.status, renamed.result.last_synced) == (row.status, NOW + 7)


@pytest.mark.parametrize("row", [LEASED, PENDING], ids=["leased", "pending"])
def test_what_a_track_was_told_is_not_renamed(row: Sandbox) -> None:
    assert decide_listing(row, RENAMED, cause=cause()) is None


def test_a_failed_deletion_tells_what_the_provider_said() -> None:
    policy = DeletionPolicy(max_attempts=2, backoff_base_sec=60, backoff_max_sec=60)
    why = cause().because("status 500")
    first = decide_failed_deletion(PENDING, policy, jitter=0, cause=why)
    assert told(first) == ("deletion.retried", "operator", "status 500")
    last = decide_failed_deletion(first.result, policy, jitter=0, cause=why)
    assert told(last) == ("deletion.failed", "operator", "status 500")


def test_a_deleted_sandbox_is_told_as_its_tombstone() -> None:
    gone = decide_deleted(PENDING, cause(NOW + 3))
    [event] = gone.events
    assert gone.after is not None
    assert (event.kind, event.effect) == ("sandbox.deleted", Effect.FULL)
    assert event.data == state_of(gone.after)
    assert "kept_until" not in event.data
    assert gone.after.sequence == PENDING.sequence + 1

"""Places in the queue: their order, and what each decision changes and tells."""

from dataclasses import replace

import pytest

from sandyard.broker.pool.action_model import Action, decide_action
from sandyard.broker.pool.model import Claim, Listed, Status, decide_unreserved
from sandyard.broker.pool.provider_model import decide_listing
from sandyard.broker.queue.model import (
    Ticket,
    becomes_free,
    decide_dropped,
    decide_queued,
    decide_ready,
    decide_served,
    decide_waiting,
    first_who_wants,
)
from sandyard.kit.changes.events import Effect
from sandyard.kit.changes.transitions import followed_by
from tests.unit.broker.rows import FREE, LEASED, NOW, STALE, cause

CLAIM = Claim("t", "k", NOW, name_prefix="lab")
TICKET = decide_queued(CLAIM, ticket_id="0001", urgency=3).result
_kept, _ready = decide_ready(TICKET, FREE, cause())
KEPT, READY = _kept.result, _ready.result


def test_a_ticket_begins_with_what_its_claim_wants() -> None:
    queued = decide_queued(CLAIM, ticket_id="0001", urgency=2)
    assert queued.result == Ticket("0001", "t", "k", 2, NOW, "lab", None, NOW, sequence=1)
    [event] = queued.events
    assert (event.kind, event.actor, event.effect) == ("ticket.created", "track:t", Effect.FULL)
    assert "asked_at" not in event.data


def test_places_are_by_urgency_and_then_by_time() -> None:
    later, urgent = replace(TICKET, ticket_id="0002"), replace(TICKET, ticket_id="9", urgency=0)
    assert sorted([later, TICKET, urgent], key=lambda each: each.queue_order) == [
        urgent,
        TICKET,
        later,
    ]


def test_the_first_ticket_that_wants_such_a_one_gets_it() -> None:
    other = replace(TICKET, ticket_id="0000", name_prefix="aws")
    assert first_who_wants(FREE, [other, READY, TICKET]) is TICKET
    assert first_who_wants(FREE, [other, READY]) is None


@pytest.mark.parametrize(("now", "is_abandoned"), [(NOW + 59, False), (NOW + 60, True)])
def test_a_ticket_is_abandoned_at_the_instant_its_time_is_over(
    now: int, is_abandoned: bool
) -> None:
    assert TICKET.is_abandoned(ttl_sec=60, now=now) is is_abandoned


def test_a_sandbox_is_kept_for_the_ticket_and_both_tell_it() -> None:
    kept, ready = decide_ready(TICKET, FREE, cause(NOW + 5, "system"))
    assert (kept.result.status, kept.result.reserved_for) == (Status.RESERVED, "0001")
    assert kept.events[0].kind == "sandbox.reserved"
    assert ready.events[0].data == {"sandbox_id": FREE.sandbox_id}
    assert ready.result.has(kept.result)
    assert not ready.result.has(FREE)
    assert not ready.result.wants(FREE)


def test_its_track_alone_leases_it_and_the_ticket_is_gone() -> None:
    leased, served = decide_served(READY, KEPT, CLAIM)
    assert leased.result == replace(LEASED, track_name=None, sequence=KEPT.sequence + 1)
    assert leased.events[0].kind == "lease.created"
    assert served.after is None
    assert served.events[0].kind == "ticket.served"


def test_a_ticket_whose_sandbox_is_gone_waits_again() -> None:
    again = decide_waiting(READY, cause())
    assert again.result == replace(TICKET, sequence=READY.sequence + 1)
    assert again.events[0].kind == "ticket.waiting"
    assert decide_dropped(READY, cause()).events[0].kind == "ticket.dropped"


def test_a_kept_sandbox_that_breaks_is_kept_for_nobody() -> None:
    missing = decide_listing(KEPT, None, cause=cause())
    assert missing is not None
    for changed in (missing, decide_action(KEPT, Action.QUARANTINE, cause())):
        assert (changed.result.status, changed.result.reserved_for) == (Status.STALE, None)


def test_two_changes_in_one_write_tell_both() -> None:
    freed = decide_unreserved(KEPT, cause())
    assert becomes_free(freed)
    assert not becomes_free(decide_action(FREE, Action.QUARANTINE, cause()))
    kept, _ = decide_ready(TICKET, freed.result, cause())
    both = followed_by(freed, kept)
    assert (both.before, both.after) == (KEPT, kept.after)
    assert [each.kind for each in both.events] == ["sandbox.unreserved", "sandbox.reserved"]
    assert [each.sequence for each in both.events] == [KEPT.sequence + 1, KEPT.sequence + 2]


def test_a_list_renames_no_kept_one_and_restores_a_missing_one_as_free() -> None:
    assert decide_listing(KEPT, Listed("e1", "new"), cause=cause()) is None
    restored = decide_action(STALE, Action.RESTORE, cause())
    assert becomes_free(restored)

"""The rules of a pool's log: a life that keeps them has no problem, and each breach is found."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sandyard.broker.pool.action_model import Action, decide_action
from sandyard.broker.pool.lease_model import Extension, decide_extension, decide_replacement
from sandyard.broker.pool.model import (
    Claim,
    Listed,
    Sandbox,
    decide_claim,
    decide_reserved,
    decide_unreserved,
)
from sandyard.broker.pool.provider_model import decide_discovery
from sandyard.broker.probes.model import decide_passed_at_claim, decide_probed
from sandyard.broker.queue.model import (
    Ticket,
    decide_dropped,
    decide_queued,
    decide_ready,
    decide_served,
    decide_waiting,
)
from sandyard.broker.reservations.model import Booking, Reservation, decide_reservation
from sandyard.kit.changes.events import LoggedEvent
from sandyard.kit.changes.transitions import Cause, E, Transition, changed, removed
from tests.faults.event_log_rules import Limits, broken_rules, unprobed
from tests.faults.history import kinds
from tests.faults.queue_observer import Sightings
from tests.support.broker.pools import NOW

LONGEST = 8 * 3600
TTL = 60
LIMITS = Limits(longest_sec=LONGEST, ticket_ttl_sec=TTL)


@dataclass
class Pool:
    """Writes down what is decided, whether it may be or not; its clock goes on by ten seconds."""

    log: list[LoggedEvent] = field(default_factory=list)
    now: int = NOW
    sightings: Sightings = field(default_factory=Sightings)
    """Somebody looks at the queue a second after each write."""

    @property
    def cause(self) -> Cause:
        return Cause("system", self.now * 1000)

    def write(self, *transitions: Transition[Any], late_sec: int = 0) -> None:
        for event in (event for each in transitions for event in each.events):
            event_id = f"{event.at_ms + late_sec * 1000:012x}{len(self.log):014x}"
            self.log.append(LoggedEvent(event_id, "broker", event))
            if event.kind in ("ticket.created", "ticket.waiting"):
                seen_ms = event.at_ms + 1000
                self.sightings.add(event.subject, seen_ms, seen_ms + 10)
        self.now += 10

    def did(self, transition: Transition[E]) -> E:
        self.write(transition)
        return transition.result

    def claim(self, track: str, **asked: Any) -> Claim:
        return Claim(track, "k", self.now, **asked)

    def found(self, name: str = "lab-1") -> Sandbox:
        """A sandbox that the provider lists, free for all."""
        listed = Listed(f"e-{name}", name)
        return self.did(decide_discovery(listed, lab_duration_hours=4, cause=self.cause))

    def leased(self, row: Sandbox, track: str = "t", **asked: Any) -> Sandbox:
        return self.did(decide_claim(row, self.claim(track, **asked)))

    def reservation(self, prefix: str = "course-") -> Reservation:
        asked = Booking(2, self.now, self.now + 3600, prefix)
        made = decide_reservation(asked, "res-1", others=(), capacity=9, cause=self.cause)
        return self.did(made)

    def kept(self, row: Sandbox, holder: str, reservation_id: str | None = None) -> Sandbox:
        return self.did(decide_reserved(row, holder, self.cause, reservation_id=reservation_id))

    def ticket(self, track: str, *, urgency: int = 3, prefix: str = "") -> Ticket:
        claim = self.claim(track, name_prefix=prefix)
        return self.did(decide_queued(claim, ticket_id=f"ticket-{track}", urgency=urgency))

    def ready(
        self, ticket: Ticket, row: Sandbox, reservation_id: str | None = None
    ) -> tuple[Sandbox, Ticket]:
        kept, ready = decide_ready(ticket, row, self.cause, reservation_id=reservation_id)
        self.write(kept, ready)
        return kept.result, ready.result

    def served(self, ticket: Ticket, row: Sandbox) -> None:
        self.write(*decide_served(ticket, row, self.claim(ticket.track_id)))

    def broken(self) -> list[str]:
        return broken_rules(self.log, self.sightings, LIMITS)


Life = Callable[[Pool], None]


def leases_are_extended_replaced_and_probed(pool: Pool) -> None:
    broken, other = pool.found("lab-1"), pool.found("lab-2")
    failed = decide_probed(other, "refused", threshold=1, cause=pool.cause)
    assert failed is not None
    stale = pool.did(failed)
    passed = decide_probed(stale, None, threshold=1, cause=pool.cause)
    assert passed is not None
    well = pool.did(passed)
    lease = pool.leased(broken)
    asked = Extension("t", 60)
    longer = decide_extension(lease, asked, longest_sec=LONGEST, cause=pool.cause)
    assert longer is not None
    pool.write(*decide_replacement(pool.did(longer), well, held_until=NOW, cause=pool.cause))


def who_comes_first_is_served_first(pool: Pool) -> None:
    first, second = pool.ticket("a"), pool.ticket("b")
    for ticket, name in ((first, "lab-1"), (second, "lab-2")):
        row, ready = pool.ready(ticket, pool.found(name))
        pool.served(ready, row)


def the_more_urgent_and_the_choosy_are_beside_the_others(pool: Pool) -> None:
    pool.ticket("a", prefix="gpu-")
    slow, urgent = pool.ticket("b"), pool.ticket("c", urgency=1)
    pool.ready(urgent, pool.found("lab-1"))
    pool.ready(slow, pool.found("lab-2"))
    pool.leased(pool.found("lab-3"), "newcomer")


def who_leaves_is_passed(pool: Pool) -> None:
    first, second = pool.ticket("a"), pool.ticket("b")
    pool.write(decide_dropped(first, pool.cause))
    pool.ready(second, pool.found())


def what_is_kept_goes_to_the_reservations_tracks(pool: Pool) -> None:
    pool.reservation()
    pool.ticket("stranger")
    member = pool.ticket("course-1")
    row = pool.kept(pool.found("lab-1"), "res-1", "res-1")
    pool.leased(row, "course-2")
    row, ready = pool.ready(member, pool.found("lab-2"), "res-1")
    pool.served(ready, row)


def what_is_let_go_is_anybodys(pool: Pool) -> None:
    pool.reservation()
    kept = pool.kept(pool.found(), "res-1", "res-1")
    pool.leased(pool.did(decide_unreserved(kept, pool.cause)), "stranger")


def who_came_in_the_same_instant_may_be_passed(pool: Pool) -> None:
    row = pool.found()
    pool.ticket("a")
    pool.leased(row, "newcomer")


def who_is_ready_before_the_late_write_is_not_passed(pool: Pool) -> None:
    """The sandbox was decided to be free while the ticket waited, and written when it did not."""
    first = pool.ticket("a")
    decided = decide_discovery(Listed("e-late", "late"), lab_duration_hours=4, cause=pool.cause)
    leased = decide_claim(decided.result, pool.claim("newcomer"))
    pool.now += 10
    pool.ready(first, pool.found())
    pool.write(decided, leased, late_sec=40)


def who_was_not_seen_before_the_look_may_be_passed(pool: Pool) -> None:
    """Its write was made long ago, and is seen only now."""
    first = pool.ticket("a")
    pool.sightings.looks[first.ticket_id] = [(pool.now * 1000, (pool.now + 25) * 1000)]
    pool.ready(pool.ticket("b"), pool.found())


def last_asked_for(pool: Pool, ticket: Ticket, ago_sec: int) -> None:
    seen_ms = pool.now * 1000
    pool.sightings.add(ticket.ticket_id, seen_ms, seen_ms + 10, asked_at=pool.now - ago_sec)
    pool.now += 1


def who_stopped_asking_may_be_passed(pool: Pool) -> None:
    first, second, free = pool.ticket("a"), pool.ticket("b"), pool.found()
    last_asked_for(pool, first, TTL)
    pool.ready(second, free)


def who_is_served_in_the_same_millisecond_is_not_passed(pool: Pool) -> None:
    first, second = pool.ticket("a"), pool.ticket("b")
    one, another = pool.found("lab-1"), pool.found("lab-2")
    pool.ready(second, one)
    pool.now -= 10
    pool.ready(first, another)


@pytest.mark.parametrize(
    "life",
    [
        leases_are_extended_replaced_and_probed,
        who_comes_first_is_served_first,
        the_more_urgent_and_the_choosy_are_beside_the_others,
        who_leaves_is_passed,
        what_is_kept_goes_to_the_reservations_tracks,
        what_is_let_go_is_anybodys,
        who_came_in_the_same_instant_may_be_passed,
        who_is_ready_before_the_late_write_is_not_passed,
        who_was_not_seen_before_the_look_may_be_passed,
        who_stopped_asking_may_be_passed,
        who_is_served_in_the_same_millisecond_is_not_passed,
    ],
)
def test_what_may_be_is_no_problem(life: Life) -> None:
    pool = Pool()
    life(pool)
    assert pool.broken() == []


def a_stranger_leases_what_is_reserved(pool: Pool) -> None:
    pool.reservation()
    pool.leased(pool.kept(pool.found(), "res-1", "res-1"), "stranger")


def a_strangers_ticket_gets_what_is_reserved(pool: Pool) -> None:
    pool.reservation()
    row, ready = pool.ready(pool.ticket("stranger"), pool.found(), "res-1")
    pool.served(ready, row)


def another_leases_what_is_kept_for_a_ticket(pool: Pool) -> None:
    row, _ = pool.ready(pool.ticket("a"), pool.found())
    pool.leased(row, "b")


def what_is_kept_for_nobody_is_leased(pool: Pool) -> None:
    pool.leased(pool.kept(pool.found(), "no-ticket"), "b")


def a_later_ticket_is_ready_first(pool: Pool) -> None:
    pool.ticket("a")
    pool.ready(pool.ticket("b"), pool.found())


def the_later_of_two_that_came_together_is_ready_first(pool: Pool) -> None:
    pool.ticket("a")
    pool.now -= 10
    pool.ready(pool.ticket("b"), pool.found())


def a_later_ticket_is_ready_before_one_that_is_asked_for(pool: Pool) -> None:
    first, second, free = pool.ticket("a"), pool.ticket("b"), pool.found()
    last_asked_for(pool, first, TTL - 5)
    pool.ready(second, free)


def a_ticket_that_waits_again_is_passed(pool: Pool) -> None:
    _, first = pool.ready(pool.ticket("a"), pool.found("lab-1"))
    second = pool.ticket("b")
    pool.write(decide_waiting(first, pool.cause))
    pool.ready(second, pool.found("lab-2"))


def a_newcomer_leases_what_became_free_later(pool: Pool) -> None:
    pool.ticket("a")
    pool.leased(pool.found(), "newcomer")


def a_lease_is_longer_than_any_may_be(pool: Pool) -> None:
    pool.leased(pool.found(), lease_sec=LONGEST + 1)


def a_lease_is_extended_past_its_bound(pool: Pool) -> None:
    asked = Extension("t", 5 * 60)
    longer = decide_extension(pool.leased(pool.found()), asked, longest_sec=10**6, cause=pool.cause)
    assert longer is not None
    pool.write(longer)


def a_lease_is_extended_after_its_end(pool: Pool) -> None:
    lease = pool.leased(pool.found(), lease_sec=5)
    assert lease.ends_at is not None
    pool.write(
        changed(lease, replace(lease, ends_at=lease.ends_at + 60), "lease.extended", pool.cause)
    )


def a_sandbox_is_leased_twice(pool: Pool) -> None:
    lease = pool.leased(pool.found())
    free = pool.did(changed(lease, lease.made_available(pool.now), "sandbox.restored", pool.cause))
    pool.leased(free, "u")


def what_is_quarantined_is_leased(pool: Pool) -> None:
    stale = pool.did(decide_action(pool.found(), Action.QUARANTINE, pool.cause))
    pool.leased(stale)


def what_failed_its_probe_is_leased(pool: Pool) -> None:
    failed = decide_probed(pool.found(), "refused", threshold=1, cause=pool.cause)
    assert failed is not None
    pool.leased(pool.did(failed))


def a_replacement_lasts_longer(pool: Pool) -> None:
    old, free = pool.leased(pool.found("lab-1")), pool.found("lab-2")
    held, _ = decide_replacement(old, free, held_until=NOW, cause=pool.cause)
    pool.write(held, decide_claim(free, pool.claim("t")))


def a_replacement_is_not_leased(pool: Pool) -> None:
    old, free = pool.leased(pool.found("lab-1")), pool.found("lab-2")
    held, _ = decide_replacement(old, free, held_until=NOW, cause=pool.cause)
    pool.write(held)


def a_probe_takes_away_what_has_passed(pool: Pool) -> None:
    lease, free = pool.leased(pool.found("lab-1")), pool.found("lab-2")
    told = pool.did(decide_passed_at_claim(lease, pool.cause))
    failed = pool.cause.because("probe at claim: refused")
    pool.write(*decide_replacement(told, free, held_until=NOW, cause=failed))


def a_ticket_is_served_twice(pool: Pool) -> None:
    row, ready = pool.ready(pool.ticket("a"), pool.found())
    pool.served(ready, row)
    again = replace(ready, sequence=ready.sequence + 1)
    pool.write(removed(again, "ticket.served", pool.cause))


def a_ticket_is_served_with_nothing(pool: Pool) -> None:
    _, ready = pool.ready(pool.ticket("a"), pool.found())
    pool.write(removed(ready, "ticket.served", pool.cause))


@pytest.mark.parametrize(
    ("life", "problem"),
    [
        (a_stranger_leases_what_is_reserved, "a reserved sandbox to a stranger"),
        (a_strangers_ticket_gets_what_is_reserved, "a reserved sandbox to a stranger"),
        (
            another_leases_what_is_kept_for_a_ticket,
            "kept for a ticket and given to a stranger",
        ),
        (what_is_kept_for_nobody_is_leased, "kept for nobody and given away"),
        (a_later_ticket_is_ready_first, "overtaken"),
        (the_later_of_two_that_came_together_is_ready_first, "overtaken"),
        (a_later_ticket_is_ready_before_one_that_is_asked_for, "overtaken"),
        (a_ticket_that_waits_again_is_passed, "overtaken"),
        (a_newcomer_leases_what_became_free_later, "overtaken"),
        (a_lease_is_longer_than_any_may_be, "a lease past its bound"),
        (a_lease_is_extended_past_its_bound, "a lease past its bound"),
        (a_lease_is_extended_after_its_end, "extended after its end"),
        (a_sandbox_is_leased_twice, "leased twice in its life"),
        (what_is_quarantined_is_leased, "leased though it was stale"),
        (what_failed_its_probe_is_leased, "leased though it was stale"),
        (a_replacement_lasts_longer, "replaced by another lease"),
        (a_replacement_is_not_leased, "replaced by nothing"),
        (a_probe_takes_away_what_has_passed, "taken away by a probe after it had passed"),
        (a_ticket_is_served_twice, "served twice"),
        (a_ticket_is_served_with_nothing, "served with nothing"),
    ],
)
def test_a_breach_is_found(life: Life, problem: str) -> None:
    pool = Pool()
    life(pool)
    assert kinds(pool.broken()) >= {problem}


def test_what_was_told_unprobed_is_found() -> None:
    pool = Pool()
    told, other = pool.leased(pool.found("lab-1")), pool.leased(pool.found("lab-2"), "u")
    pool.did(decide_passed_at_claim(told, pool.cause))
    ids = (told.sandbox_id, other.sandbox_id)
    assert unprobed(pool.log, ids) == [f"told though it was not probed: {other.sandbox_id}"]

"""All interleavings of claims, marks, expiry, sync, holds, replacements, tickets and reservations.

Each scope covers its whole space, with one crash and one lost answer. `-s` prints its size.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sandyard.broker.log_rules import PoolRules
from sandyard.broker.pool.action_model import Action
from sandyard.broker.pool.lease_model import Extension, Replacement, decide_hold
from sandyard.broker.pool.model import (
    FREE,
    Claim,
    Lease,
    Listed,
    Sandbox,
    Status,
    Tombstone,
    decide_claim,
    end_lease,
)
from sandyard.broker.pool.provider_model import decide_deleted, decide_discovery
from sandyard.broker.queue.model import Ticket, decide_queued
from sandyard.broker.reservations.model import Reservation
from sandyard.kit.changes.transitions import Cause, created
from tests.interleavings.explorer import Actor, Change, Explored, Scope, View, explore
from tests.interleavings.pool import (
    HOUR,
    TICKET_TTL_SEC,
    Call,
    PoolWorld,
    claims,
    held_leases,
    program,
)
from tests.interleavings.told import told

NOW = 1_800_000_000
LATER = NOW + 2 * HOUR
CAUSE = Cause("operator", NOW * 1000)


def sandboxes(count: int) -> list[Sandbox]:
    return [
        decide_discovery(Listed(f"x{n}", f"lab-{n}"), lab_duration_hours=1, cause=CAUSE).result
        for n in range(count)
    ]


def world(*entries: Any, listed: int = 0, compares: bool = True) -> PoolWorld:
    names = tuple(Listed(f"x{n}", f"lab-{n}") for n in range(listed))
    return PoolWorld(frozenset(entries), names, compares)


def leased(row: Sandbox, track: str) -> Sandbox:
    return decide_claim(row, Claim(track, track, NOW)).result


def ticket(number: int, track: str) -> Ticket:
    claim = Claim(track, track, NOW)
    return decide_queued(claim, ticket_id=f"{number:026x}", urgency=3).result


def held(row: Sandbox, until: int) -> Sandbox:
    return decide_hold(row, until, CAUSE.because("broken")).result


def reservation(count: int, prefix: str = "class") -> Reservation:
    made = Reservation("res-1", count, NOW, NOW + 9 * HOUR, NOW, track_prefix=prefix)
    return created(made, "reservation.created", CAUSE).result


def sound(view: View[PoolWorld]) -> list[str]:
    """What holds in every state of a pool (SPEC §2)."""
    leases = held_leases(view.world)
    problems = [
        f"two sandboxes for {key}"
        for key, count in Counter((each.track_id, each.key) for each in leases).items()
        if count > 1
    ]
    for row in view.world.rows:
        if row.status in FREE and (row.allocated_at or row.allocated_to_track):
            problems.append(f"{row.name} is {row.status} and has had an owner")
        if (row.status is Status.RESERVED) != (row.reserved_for is not None):
            problems.append(f"{row.name} is {row.status} and reserved for {row.reserved_for}")
    return [*problems, *_answered_twice(view), *_leased_twice(view.world)]


def _answered_twice(view: View[PoolWorld]) -> list[str]:
    """A sandbox was told to one track only."""
    told: dict[str, set[str]] = {}
    for name, outcome in view.outcomes.items():
        if isinstance(outcome, Lease):
            told.setdefault(outcome.sandbox_id, set()).add(name.split("/")[0])
    return [f"told to {sorted(tracks)}" for tracks in told.values() if len(tracks) > 1]


def _leased_twice(pool: PoolWorld) -> list[str]:
    replaced = {each.replaced_by for each in pool.rows if each.replaced_by}
    leases = Counter(each.subject for each in pool.log if each.kind == "lease.created")
    return [
        f"{subject} was leased {count} times"
        for subject, count in leases.items()
        if count > 1 and subject not in replaced
    ]


def none_left_over(view: View[PoolWorld]) -> list[str]:
    """Afterwards nobody waits while something that is free would do."""
    problems = sound(view)
    if view.is_over:
        free = [row for row in view.world.rows if row.status is Status.AVAILABLE]
        waiting = [each for each in view.world.tickets if each.sandbox_id is None]
        problems += [
            f"{each.track_id} waits while {row.name} is free"
            for each in waiting
            for row in free
            if each.wants(row)
        ]
        kept = {each.sandbox_id: each.ticket_id for each in view.world.tickets}
        problems += [
            f"{row.name} is kept for a ticket that does not know of it"
            for row in view.world.rows
            if row.reserved_for is not None
            and row.reserved_for != row.reservation_id
            and kept.get(row.sandbox_id) != row.reserved_for
        ]
    return problems


def in_order(change: Change[PoolWorld]) -> list[str]:
    """Nobody is passed whom the one who decides has seen waiting, and who waits still."""
    ready = {each.ticket_id: each for each in change.after.tickets if each.sandbox_id}
    waits = {each for each in change.before.tickets if each.sandbox_id is None}
    newly = [ready[each.ticket_id] for each in waits if each.ticket_id in ready]
    seen = next((each for each in reversed(change.answers) if _is_queue(each)), ())
    return [
        f"{one.track_id} is passed by {each.track_id}"
        for each in newly
        for one in waits
        if one in seen and one.queue_order < each.queue_order
    ]


def _is_queue(answer: Any) -> bool:
    return isinstance(answer, tuple) and any(isinstance(each, Ticket) for each in answer)


def uneaten(view: View[PoolWorld]) -> list[str]:
    """What is kept for a class is leased to it alone, and counted rightly when all is quiet."""
    problems = none_left_over(view)
    problems += [
        f"{row.name} of the class is leased to {row.allocated_to_track}"
        for row in view.world.rows
        if row.reservation_id and not (row.allocated_to_track or "class").startswith("class")
    ]
    if view.is_over:
        [booked] = view.world.of(Reservation)
        counted = [
            row
            for row in view.world.rows
            if row.reservation_id and row.status in (Status.RESERVED, Status.ALLOCATED)
        ]
        if booked.is_active(view.now) and booked.kept < len(counted):
            problems.append(f"{len(counted)} are kept, {booked.kept} counted")
    return problems


def contention_is_no_empty_pool(view: View[PoolWorld]) -> list[str]:
    """There are as many sandboxes as tracks, so that nobody may be told that there is none."""
    refused = [name for name, outcome in view.outcomes.items() if outcome is None]
    return [*sound(view), *(f"{name} was told that there is none" for name in refused)]


def same_answer(view: View[PoolWorld]) -> list[str]:
    """Both calls with one key have the same answer, and the pool has one lease of it."""
    told = {outcome for name, outcome in view.outcomes.items() if name.startswith("a/")}
    return [*contention_is_no_empty_pool(view), *(["two answers for one key"][: len(told) > 1])]


def ends(view: View[PoolWorld]) -> list[str]:
    """Whoever died, after the jobs no lease is past its end."""
    late = [each for each in held_leases(view.world) if not each.lease.is_live(view.now)]
    return [
        *sound(view),
        *(f"{each.track_id} has a lease past its end" for each in late if view.is_over),
    ]


def expired_in_time(change: Change[PoolWorld]) -> list[str]:
    """No lease is expired before its end, also if that was moved a moment ago."""
    ended = {
        each.sandbox_id for each in change.after.rows if each.status is Status.PENDING_DELETION
    }
    return [
        f"{row.name} is expired before its end"
        for row in change.before.rows
        if change.actor == "expiry"
        and row.status is Status.ALLOCATED
        and row.sandbox_id in ended
        and row.lease.expires_at > NOW + HOUR
    ]


def gone_stays_gone(view: View[PoolWorld]) -> list[str]:
    tombstones = {each.sandbox_id for each in view.world.of(Tombstone)}
    back = [row.name for row in view.world.rows if row.sandbox_id in tombstones]
    return [*sound(view), *(f"{name} is back" for name in back)]


def marks(track: str, row: Sandbox) -> Call:
    """`Broker.mark_for_deletion`."""
    return lambda services: services.broker.mark_for_deletion(
        track_id=track, sandbox_id=row.sandbox_id
    )


def extends(track: str, row: Sandbox) -> Call:
    """`Leases.extend`, by an hour."""
    return lambda services: services.leases.extend(row.sandbox_id, Extension(track, 60, "once"))


def replaces(track: str, row: Sandbox) -> Call:
    """`Leases.replace`."""
    wanted = Replacement(track, "broken")
    return lambda services: services.leases.replace(row.sandbox_id, wanted)


def moves_up(ticket: Ticket) -> Call:
    return lambda services: services.queue.move(ticket.ticket_id, 0, by="operator:ann")


def drops(ticket: Ticket) -> Call:
    return lambda services: services.queue.drop(ticket.ticket_id, by="operator:ann")


def deletes(row: Sandbox) -> Any:
    """The end of `Cleanup`: the provider has deleted it."""

    async def run(services: Any) -> None:
        found = await services.broker.store.find(row.sandbox_id)
        if isinstance(found, Sandbox) and found.status is Status.PENDING_DELETION:
            await services.broker.store.apply([decide_deleted(found, CAUSE)])

    return run


DISPATCH = program(lambda services: services.queue.dispatch())
EXPIRE = program(lambda services: services.expiry.run())
HOLDS = program(lambda services: services.holds.run())
MAINTAIN = program(lambda services: services.reservations.maintain())
ONE, TWO, THREE = sandboxes(3)
CLASS = reservation(1)
SECOND = ticket(2, "b")


def scopes(*, is_large: bool) -> list[Scope[PoolWorld]]:
    """Judged by the rules of `sandyard verify` too."""
    return [
        replace(each, invariant=partial(verified, each.world, each.invariant))
        for each in _scopes(is_large=is_large)
    ]


def verified(
    first: PoolWorld, invariant: Callable[[View[PoolWorld]], list[str]], view: View[PoolWorld]
) -> list[str]:
    margin_ms = 3 * HOUR * 1000  # so long may a process stand still between its clock and its write
    rules, problems = PoolRules(TICKET_TTL_SEC, margin_ms), invariant(view)
    for subject, events in told(first.entries, view.world.log).items():
        problems += [f"{subject} {each}" for each in rules.add(events)]
    return problems + [f"{each.subject} {each.message}" for each in rules.across()]


def _scopes(*, is_large: bool) -> list[Scope[PoolWorld]]:
    third = (Actor("c", program(claims("c"))),) if is_large else ()
    spare = (THREE,) if is_large else ()
    return [
        Scope(
            "claims of as many tracks as sandboxes",
            world(ONE, TWO, *spare),
            (Actor("a", program(claims("a"))), Actor("b", program(claims("b"))), *third),
            (NOW,),
            contention_is_no_empty_pool,
        ),
        Scope(
            "two calls with one key, and a stranger",
            world(ONE, TWO),
            (
                Actor("a/1", program(claims("a"))),
                Actor("a/2", program(claims("a"))),
                Actor("b", program(claims("b"))),
            ),
            (NOW,),
            same_answer,
        ),
        Scope(
            "a mark, the end of the lease, expiry and the next claim of the key",
            world(leased(ONE, "a"), TWO),
            (
                Actor("a/mark", program(marks("a", ONE))),
                Actor("expiry", EXPIRE),
                Actor("a", program(claims("a"))),
            ),
            (NOW, LATER),
            ends,
            afterwards=(EXPIRE,),
        ),
        Scope(
            "a lease that is extended, a mark and expiry",
            world(leased(ONE, "a")),
            (
                Actor("a/extend", program(extends("a", ONE))),
                Actor("a/mark", program(marks("a", ONE))),
                Actor("expiry", EXPIRE),
            ),
            (NOW, NOW + HOUR),
            sound,
            expired_in_time,
        ),
        Scope(
            "sync, a claim and a quarantine",
            world(ONE, TWO, listed=1 if not is_large else 3),
            (
                Actor("sync", program(lambda services: services.sync.run())),
                Actor("a", program(claims("a"))),
                Actor(
                    "operator",
                    program(
                        lambda services: services.broker.act(
                            Action.QUARANTINE, sandbox_id=TWO.sandbox_id
                        )
                    ),
                ),
            ),
            (NOW,),
            sound,
        ),
        Scope(
            "a late list and a deletion",
            world(end_lease(leased(ONE, "a"), CAUSE).result, listed=1),
            (
                Actor("sync", program(lambda services: services.sync.run())),
                Actor("cleanup", program(deletes(ONE))),
                Actor("a", program(claims("a"))),
            ),
            (NOW,),
            gone_stays_gone,
        ),
        Scope(
            "a hold, a replacement, a mark and a claim of the last one",
            world(leased(ONE, "a"), TWO, *spare),
            (
                Actor("a/replace", program(replaces("a", ONE))),
                Actor("a/mark", program(marks("a", ONE))),
                Actor("b", program(claims("b"))),
            ),
            (NOW,),
            sound,
        ),
        Scope(
            "holds that end, and two tickets",
            world(
                held(ONE, NOW),
                ticket(1, "a"),
                ticket(2, "b"),
                *([held(TWO, NOW)] if is_large else []),
            ),
            (
                Actor("holds", HOLDS),
                Actor("queue", DISPATCH),
                Actor("b", program(claims("b"))),
            ),
            (NOW,),
            none_left_over,
            in_order,
            afterwards=(DISPATCH,),
        ),
        Scope(
            "a ticket that leaves, the next one, and a sandbox that is found",
            world(ticket(1, "a"), ticket(2, "b"), listed=1),
            (
                Actor("sync", program(lambda services: services.sync.run())),
                Actor(
                    "a/leave",
                    program(lambda services: services.queue.leave(track_id="a", key="a")),
                ),
                Actor("b", program(claims("b"))),
            ),
            (NOW,),
            none_left_over,
            in_order,
            afterwards=(DISPATCH,),
        ),
        Scope(
            "a ticket that is moved up, one that is dropped, and a sandbox that is found",
            world(ticket(1, "a"), SECOND, listed=1),
            (
                Actor("sync", program(lambda services: services.sync.run())),
                Actor("move", program(moves_up(SECOND))),
                Actor("drop", program(drops(SECOND))),
            ),
            (NOW,),
            none_left_over,
            in_order,
            afterwards=(DISPATCH,),
        ),
        Scope(
            "a reservation that is filled, its class and a stranger",
            world(ONE, TWO, CLASS),
            (
                Actor("reservations", MAINTAIN),
                Actor("class-1", program(claims("class-1"), [CLASS])),
                Actor("b", program(claims("b"))),
            ),
            (NOW,),
            uneaten,
            afterwards=(MAINTAIN, DISPATCH),
        ),
    ]


def check(explored: Explored) -> None:
    print(explored)  # noqa: T201 - the size of the space, with -s
    assert explored.problems == [], "\n".join([*explored.trace, *explored.problems])


@pytest.mark.parametrize("scope", scopes(is_large=False), ids=lambda scope: scope.name)
def test_no_interleaving_breaks_a_promise(scope: Scope[PoolWorld]) -> None:
    check(explore(scope))


@pytest.mark.torture
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scope", scopes(is_large=True), ids=lambda scope: scope.name)
def test_no_interleaving_of_a_larger_scope_breaks_a_promise(scope: Scope[PoolWorld]) -> None:
    check(explore(scope))


def test_a_store_that_does_not_compare_is_found_by_a_shortest_trace() -> None:
    scope = scopes(is_large=False)[0]
    found = explore(replace(scope, world=world(ONE, TWO, compares=False), crashes=0, losses=0))
    assert [each.split(":")[0] for each in found.trace] == ["a"] * 3 + ["b"] * 3 + ["a", "b"]
    assert any(each.endswith("was leased 2 times") for each in found.problems)


def test_a_queue_that_serves_the_last_one_first_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_who_wants(row: Sandbox, tickets: Sequence[Ticket]) -> Ticket | None:
        return next((each for each in reversed([*tickets]) if each.wants(row)), None)

    module = "sandyard.broker.queue.assignment.first_who_wants"
    monkeypatch.setattr(module, last_who_wants)
    scope = next(each for each in scopes(is_large=False) if each.name.startswith("holds"))
    found = explore(replace(scope, crashes=0, losses=0))
    assert found.problems == ["a is passed by b"]
    assert found.trace


def test_an_expiry_that_ignores_an_extended_lease_is_found() -> None:
    scope = next(each for each in scopes(is_large=False) if "extended" in each.name)
    unsafe = world(leased(ONE, "a"), compares=False)
    found = explore(replace(scope, world=unsafe, crashes=0, losses=0))
    assert found.problems == ["lab-0 is expired before its end"]

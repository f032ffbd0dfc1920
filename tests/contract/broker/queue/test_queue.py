"""The queue for sandboxes: first come first served, on every engine."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.action_model import Action
from sandyard.broker.pool.errors import NoSandboxesAvailableError
from sandyard.broker.pool.model import Claim, Claimed, Listed, Status
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.queue.errors import TicketNotFoundError
from sandyard.broker.queue.model import URGENCY, QueueOrder, Ticket
from sandyard.broker.queue.service import Queue, QueueReport, Waiter
from sandyard.broker.reservations.model import Booking
from sandyard.broker.verification import verify
from sandyard.kit.changes.events import EventQuery
from tests.fakes.provider import FakeProvider
from tests.support.broker.pools import LAB_SEC, check_invariants, discoveries, everything, fill, row
from tests.support.broker.services import (
    new_assigner,
    new_broker,
    new_queue,
    new_reservations,
    new_sync,
)
from tests.support.clocks import ManualClock

TTL = 60


@pytest.fixture
def queue(store: PoolStore, clock: ManualClock) -> Queue:
    return new_queue(store, clock=clock, ticket_ttl_sec=TTL)


class Yard:
    """A pool that grows as the provider's list does, and tracks that ask for its sandboxes."""

    def __init__(self, store: PoolStore, queue: Queue, clock: ManualClock) -> None:
        self.store = store
        self.queue = queue
        self.clock = clock
        self.provider = FakeProvider()
        self.metrics = BrokerMetrics(CollectorRegistry())
        self.broker = new_broker(store, clock=clock, metrics=self.metrics, queue=queue)

    def claim(self, track: str, prefix: str = "") -> Callable[[], Claim]:
        def make() -> Claim:
            return Claim(track, track, int(self.clock.now()), name_prefix=prefix)

        return make

    async def ask(
        self, track: str, *, urgency: int = URGENCY, prefix: str = ""
    ) -> Claimed | Ticket:
        return await self.queue.ask(self.claim(track, prefix), urgency=urgency)

    async def queued(self, *tracks: str) -> list[Ticket]:
        tickets = [await self.ask(track) for track in tracks]
        assert all(isinstance(each, Ticket) for each in tickets)
        return [each for each in tickets if isinstance(each, Ticket)]

    async def grow(self, *names: str) -> None:
        self.provider.sandboxes |= {f"e-{each}": Listed(f"e-{each}", each) for each in names}
        sync = new_sync(
            self.store,
            self.provider,
            clock=self.clock,
            metrics=self.metrics,
            lab_duration_hours=LAB_SEC / 3600,
            ticket_ttl_sec=TTL,
        )
        assert (await sync.run()).added == len(names)

    async def served(self, track: str) -> str:
        """The name of the sandbox that the track now gets."""
        answer = await self.ask(track)
        assert isinstance(answer, Claimed)
        return answer.lease.name


@pytest.fixture
def yard(store: PoolStore, queue: Queue, clock: ManualClock) -> Yard:
    return Yard(store, queue, clock)


async def test_what_becomes_free_is_for_those_who_wait_in_their_order(yard: Yard) -> None:
    await yard.queued("a", "b", "c")
    await yard.grow("lab-1", "lab-2")
    assert await yard.store.claim(yard.claim("newcomer")()) is None
    assert isinstance(await yard.ask("c"), Ticket)
    assert {await yard.served("b"), await yard.served("a")} == {"lab-1", "lab-2"}
    await yard.grow("lab-3", "lab-4")
    newcomer = await yard.store.claim(yard.claim("newcomer")())
    assert newcomer is not None
    assert {newcomer.lease.name, await yard.served("c")} == {"lab-3", "lab-4"}
    await check_invariants(yard.store)
    assert (await verify(yard.store)).problems == []


async def test_a_place_is_kept_and_told(yard: Yard, clock: ManualClock) -> None:
    first, second, third = await yard.queued("a", "b", "c")
    assert await yard.queued("b") == [second]
    places = [await yard.queue.position_of(each) for each in (first, second, third)]
    assert [(each.position, each.estimated_wait_sec) for each in places] == [
        (1, None),
        (2, None),
        (3, None),
    ]
    await yard.grow("lab-1")
    clock.advance(20)
    await yard.served("a")
    clock.advance(10)
    place = await yard.queue.position_of(third)
    assert (place.position, place.estimated_wait_sec) == (2, 20)


@pytest.mark.parametrize("count", [3, 60])
async def test_tickets_are_found_by_their_keys_few_or_many(yard: Yard, count: int) -> None:
    queued = await yard.queued(*(f"t-{number}" for number in range(count)))
    await yard.queued("another")
    keys = [each.lease_key for each in queued]
    found = await yard.store.find_tickets([*keys, ("t-0", "other"), ("nobody", "nobody")])
    assert {each.ticket_id: each for each in found} == {each.ticket_id: each for each in queued}


async def test_the_more_urgent_is_served_first(yard: Yard) -> None:
    await yard.queued("a", "b")
    urgent = await yard.ask("urgent", urgency=0)
    assert isinstance(urgent, Ticket)
    assert (await yard.queue.position_of(urgent)).position == 1
    await yard.grow("lab-1")
    assert isinstance(await yard.ask("a"), Ticket)
    assert await yard.served("urgent") == "lab-1"


async def test_an_operator_moves_a_ticket_up_and_down(yard: Yard) -> None:
    _, moved, last = await yard.queued("a", "b", "c")
    assert (await yard.queue.move(moved.ticket_id, 0, by="operator:ann")).urgency == 0
    assert (
        await yard.queue.move(moved.ticket_id, 0, by="operator:ann")
    ).sequence == moved.sequence + 1
    await yard.queue.move(last.ticket_id, 7, by="operator:ann")
    page = await yard.queue.page(limit=2, cursor=None)
    rest = await yard.queue.page(limit=2, cursor=page.next_cursor)
    assert [each.track_id for each in (*page.items, *rest.items)] == ["b", "a", "c"]
    await yard.grow("lab-1")
    assert isinstance(await yard.ask("a"), Ticket)
    assert await yard.served("b") == "lab-1"
    with pytest.raises(TicketNotFoundError):
        await yard.queue.move(moved.ticket_id, 1, by="operator:ann")
    await yard.queue.drop(last.ticket_id, by="operator:ann")
    with pytest.raises(TicketNotFoundError):
        await yard.queue.drop(last.ticket_id, by="operator:ann")
    query = EventQuery(subject=last.ticket_id)
    told = (await yard.store.events.page(query, limit=9, cursor=None)).items
    assert [(each.event.kind, each.event.actor) for each in told[:2]] == [
        ("ticket.dropped", "operator:ann"),
        ("ticket.moved", "operator:ann"),
    ]
    assert (await verify(yard.store, ticket_ttl_sec=TTL)).problems == []


async def test_a_ticket_for_other_names_is_in_nobody_s_way(yard: Yard) -> None:
    await yard.ask("choosy", prefix="aws-")
    await yard.queued("any")
    await yard.grow("gcp-1")
    assert await yard.served("any") == "gcp-1"
    await yard.grow("gcp-2")
    assert (await yard.store.claim(yard.claim("newcomer")())) is not None
    await yard.grow("aws-1")
    assert await yard.served("choosy") == "aws-1"


async def test_who_stops_asking_loses_place_and_sandbox_to_the_next(
    yard: Yard, clock: ManualClock
) -> None:
    await yard.queued("gone", "b")
    await yard.grow("lab-1")
    clock.advance(TTL - 1)
    await yard.queued("b")
    assert await yard.queue.dispatch() == QueueReport(ready=1, waiting=1)
    clock.advance(1)
    assert (await yard.queue.dispatch()).dropped == 1
    assert await yard.served("b") == "lab-1"
    assert isinstance(await yard.ask("gone"), Ticket)
    await check_invariants(yard.store)
    assert (await verify(yard.store)).problems == []


async def test_nothing_is_kept_for_those_who_stopped_asking_though_none_is_dropped_yet(
    yard: Yard, clock: ManualClock
) -> None:
    """The job that drops them may be late, or fail again and again."""
    await yard.queued("gone-1", "gone-2", "there")
    clock.advance(TTL - 1)
    await yard.queued("there")
    clock.advance(1)
    await yard.grow("lab-1", "lab-2")
    assert await yard.served("there") in ("lab-1", "lab-2")
    assert await yard.store.claim(yard.claim("newcomer")()) is not None
    [waiting, *_] = await yard.queued("gone-1", "gone-2")
    assert waiting.sandbox_id is None, "who asks again before it is dropped keeps its position"
    await yard.grow("lab-3")
    assert await yard.served("gone-1") == "lab-3"
    await check_invariants(yard.store)


async def test_who_is_served_after_one_that_is_dropped_has_its_own_history(
    yard: Yard, clock: ManualClock
) -> None:
    await yard.queued("gone")
    clock.advance(TTL)
    [ticket] = await yard.queued("course-1")
    await fill(yard.store, 1)  # past the assigner
    now = int(clock.now())
    await new_reservations(yard.store, clock=clock).reserve(Booking(1, now, now + 60, "course-"))
    queue = new_queue(yard.store, clock=clock, ticket_ttl_sec=TTL)
    assert await queue.dispatch() == QueueReport(dropped=1)
    page = await yard.store.events.page(EventQuery(subject=ticket.ticket_id), limit=1, cursor=None)
    [ready] = page.items
    assert (ready.event.kind, ready.event.actor, ready.event.reason) == (
        "ticket.ready",
        "system",
        None,
    )


async def test_who_leaves_gives_its_place_up(yard: Yard) -> None:
    await yard.queued("a")
    await yard.grow("lab-1")
    assert await yard.queue.leave(track_id="a", key="a")
    assert not await yard.queue.leave(track_id="a", key="a")
    [free] = await everything(yard.store)
    assert (free.status, free.reserved_for) == (Status.AVAILABLE, None)


async def test_a_kept_sandbox_that_breaks_leaves_its_ticket_in_its_place(yard: Yard) -> None:
    await yard.queued("a", "b")
    await yard.grow("lab-1")
    [kept] = await everything(yard.store)
    assert kept.status is Status.RESERVED
    await yard.broker.act(Action.QUARANTINE, sandbox_id=kept.sandbox_id)
    await yard.queue.dispatch()
    restored = await yard.broker.act(Action.RESTORE, sandbox_id=kept.sandbox_id)
    assert (restored.status, restored.reserved_for) == (Status.RESERVED, kept.reserved_for)
    assert isinstance(await yard.ask("b"), Ticket)
    assert await yard.served("a") == "lab-1"
    await check_invariants(yard.store)


async def test_a_sandbox_that_came_in_the_same_instant_is_found_for_the_ticket(
    yard: Yard,
) -> None:
    await yard.queued("a", "b")
    await fill(yard.store, 1, prefix="late")  # past the assigner
    assert await yard.queue.dispatch() == QueueReport(waiting=1)
    assert await yard.served("a") == "late-00000"


class LateQueue:
    """The store's queue as somebody sees it who looks a moment before a ticket is written."""

    def __init__(self, store: PoolStore) -> None:
        self._store = store
        self._looks = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def tickets(self, *, limit: int, after: QueueOrder | None) -> Sequence[Ticket]:
        self._looks += 1
        return [] if self._looks == 1 else await self._store.tickets(limit=limit, after=after)


async def test_a_ticket_queued_between_the_read_and_the_write_is_served_after_it(
    yard: Yard,
) -> None:
    await yard.queued("a", "b")
    late: Any = LateQueue(yard.store)
    freed = discoveries(2, now=int(yard.clock.now()))
    assert await new_assigner(late, clock=yard.clock).apply(freed) == [True, True]
    with pytest.raises(NoSandboxesAvailableError):
        await yard.broker.allocate(track_id="newcomer")
    assert [await yard.served(track) for track in ("a", "b")] == ["lab-00000", "lab-00001"]


async def test_who_queues_while_many_are_found_is_served_before_the_last_of_them(
    yard: Yard,
) -> None:
    """Its ticket comes between the first look at the queue and the write that follows it."""
    served: list[bool] = []

    async def queue_at_first() -> None:
        if not served:
            await yard.queued("late")
        ticket = await yard.store.find_ticket("late", "late")
        served.append(ticket is not None and ticket.sandbox_id is not None)

    class Watched(LateQueue):
        async def apply(self, transitions: Sequence[Any]) -> Sequence[bool]:
            await queue_at_first()
            return await yard.store.apply(transitions)

    watched: Any = Watched(yard.store)
    many = Yard(watched, new_queue(watched, clock=yard.clock, ticket_ttl_sec=TTL), yard.clock)
    await many.grow(*(f"lab-{number:03}" for number in range(250)))
    assert served[:2] == [False, True]


class Meanwhile:
    """The store, with something that happens once, before or after a call of it."""

    def __init__(
        self, store: PoolStore, name: str, happens: Callable[[], Awaitable[object]], *, after: bool
    ) -> None:
        self._store = store
        self._name = name
        self._happens: Callable[[], Awaitable[object]] | None = happens
        self._after = after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name != self._name or self._happens is None:
            return method
        happens, self._happens = self._happens, None

        async def called(*given: Any, **named: Any) -> Any:
            if not self._after:
                await happens()
            answer = await method(*given, **named)
            if self._after:
                await happens()
            return answer

        return called


def meanwhile(
    store: PoolStore, name: str, happens: Callable[[], Awaitable[object]], *, after: bool = True
) -> Any:
    return Meanwhile(store, name, happens, after=after)


async def test_who_queues_while_others_are_served_comes_before_newcomers(yard: Yard) -> None:
    await yard.queued("a")

    async def others_claim() -> None:
        for number in range(3):
            await yard.store.claim(yard.claim(f"newcomer-{number}")())

    late = meanwhile(yard.store, "apply_together", lambda: yard.queued("late"))
    store = meanwhile(late, "apply", others_claim)
    freed = discoveries(3, now=int(yard.clock.now()))
    assert await new_assigner(store, clock=yard.clock).apply(freed) == [True] * 3
    assert [await yard.served(each) for each in ("a", "late")] == ["lab-00000", "lab-00001"]


async def waits_again(yard: Yard, track: str) -> None:
    """What is kept for the track's ticket breaks."""
    ticket = await yard.store.find_ticket(track, track)
    assert ticket is not None
    assert ticket.sandbox_id is not None
    await yard.broker.act(Action.QUARANTINE, sandbox_id=ticket.sandbox_id)
    await yard.queued(track)


async def test_who_waits_again_while_others_are_served_is_the_next(yard: Yard) -> None:
    await yard.queued("first", "a", "b")
    await yard.grow("gone")

    async def long_after() -> None:
        await waits_again(yard, "first")
        yard.clock.advance(2)

    store = meanwhile(yard.store, "apply_together", long_after)
    freed = discoveries(2, now=int(yard.clock.now()))
    assert await new_assigner(store, clock=yard.clock).apply(freed) == [True, True]
    assert isinstance(await yard.ask("b"), Ticket)
    assert {await yard.served("first"), await yard.served("a")} == {"lab-00000", "lab-00001"}


async def test_who_was_served_and_waits_again_before_the_write_is_the_next(yard: Yard) -> None:
    await yard.queued("first", "a")

    async def served_for_a_moment() -> None:
        await yard.grow("gone")
        await waits_again(yard, "first")

    store = meanwhile(yard.store, "apply_together", served_for_a_moment, after=False)
    freed = discoveries(1, now=int(yard.clock.now()))
    assert await new_assigner(store, clock=yard.clock).apply(freed) == [True]
    assert isinstance(await yard.ask("a"), Ticket)
    assert await yard.served("first") == "lab-00000"


async def test_who_waits_again_while_the_job_runs_is_the_next(yard: Yard) -> None:
    await yard.queued("first", "a")
    await yard.grow("gone")

    async def one_for_another() -> None:
        await waits_again(yard, "first")
        await fill(yard.store, 1)  # past the assigner

    store = meanwhile(yard.store, "tickets", one_for_another)
    queue = new_queue(store, clock=yard.clock, ticket_ttl_sec=TTL)
    assert (await queue.dispatch()).waiting == 1
    assert isinstance(await yard.ask("a"), Ticket)
    assert await yard.served("first") == "lab-00000"


async def test_sandboxes_freed_while_a_ticket_is_written_are_assigned_to_the_queue(
    yard: Yard,
) -> None:
    """What became free after the claim that found nothing, and before the ticket was written."""

    class Late:
        def __getattr__(self, name: str) -> Any:
            return getattr(yard.store, name)

        async def claim(self, claim: Claim) -> Claimed | None:
            claimed = await yard.store.claim(claim)
            await fill(yard.store, 1)
            return claimed

    await yard.queued("first")
    yard.clock.advance(1)
    late: Any = Late()
    queue = new_queue(late, clock=yard.clock, ticket_ttl_sec=TTL)
    assert isinstance(await queue.ask(yard.claim("second")), Ticket)
    with pytest.raises(NoSandboxesAvailableError):
        await yard.broker.allocate(track_id="newcomer")
    assert await yard.served("first") == "lab-00000"


async def test_a_call_that_does_not_wait_gets_what_is_kept_for_its_ticket(yard: Yard) -> None:
    await yard.queued("a", "b")
    with pytest.raises(NoSandboxesAvailableError):
        await yard.broker.allocate(track_id="a")
    await yard.grow("lab-1")
    with pytest.raises(NoSandboxesAvailableError):
        await yard.broker.allocate(track_id="b")
    assert (await yard.broker.allocate(track_id="a")).lease.name == "lab-1"
    assert await yard.store.find_ticket("a", "a") is None


async def test_a_call_that_does_not_wait_keeps_its_ticket(yard: Yard, clock: ManualClock) -> None:
    [ticket] = await yard.queued("a")
    for _ in range(3):
        clock.advance(TTL - 1)
        with pytest.raises(NoSandboxesAvailableError):
            await yard.broker.allocate(track_id="a")
        await yard.queue.dispatch()
    assert await yard.store.find_ticket("a", "a") == replace(ticket, asked_at=int(clock.now()))


async def test_who_has_a_lease_is_told_so_though_its_ticket_waits(yard: Yard) -> None:
    [ticket] = await yard.queued("a")
    await fill(yard.store, 1)  # past the assigner
    leased = await yard.store.claim(yard.claim("a")())
    assert leased is not None
    assert await yard.ask("a") == Claimed(leased.lease, is_new=False)
    assert await yard.store.find_ticket(*ticket.lease_key) is None


async def test_many_calls_of_one_key_have_one_place_and_one_lease(yard: Yard) -> None:
    answers = await asyncio.gather(*(yard.ask("a") for _ in range(8)))
    assert len({each.ticket_id for each in answers if isinstance(each, Ticket)}) == 1
    await yard.grow("lab-1", "lab-2")
    leases = await asyncio.gather(*(yard.ask("a") for _ in range(8)))
    assert all(isinstance(each, Claimed) for each in leases)
    assert sum(isinstance(each, Claimed) and each.is_new for each in leases) == 1
    assert len({each.lease.sandbox_id for each in leases if isinstance(each, Claimed)}) == 1
    await check_invariants(yard.store)


async def test_an_old_lease_of_the_key_ends_before_the_new_one_begins(
    yard: Yard, clock: ManualClock
) -> None:
    await yard.grow("lab-1")
    assert await yard.served("a") == "lab-1"
    clock.advance(LAB_SEC)
    await yard.queued("a")
    await yard.grow("lab-2")
    assert await yard.served("a") == "lab-2"
    states = {each.name: each.status for each in await everything(yard.store)}
    assert states == {"lab-1": Status.PENDING_DELETION, "lab-2": Status.ALLOCATED}
    await check_invariants(yard.store)


async def test_a_call_waits_until_it_is_served_or_its_time_is_over(yard: Yard) -> None:
    waiting = asyncio.create_task(yard.queue.wait(yard.claim("a"), wait_sec=30))
    while await yard.store.find_ticket("a", "a") is None:
        await asyncio.sleep(0.01)
    assert await yard.queue.wait(yard.claim("b"), wait_sec=0) is None
    await yard.grow("lab-1")
    claimed = await waiting
    assert claimed is not None
    assert claimed.lease.name == "lab-1"
    assert await yard.store.find_ticket("a", "a") is None
    assert await yard.store.find_ticket("b", "b") is not None, "its place is kept"


async def test_who_goes_away_while_it_waits_is_leased_nothing_and_keeps_its_place(
    yard: Yard,
) -> None:
    waiter = Waiter()
    waiting = asyncio.create_task(yard.queue.wait(yard.claim("a"), wait_sec=300, waiter=waiter))
    while await yard.store.find_ticket("a", "a") is None:
        await asyncio.sleep(0.01)
    waiter.leave()
    assert await waiting is None
    await yard.queued("b")
    await yard.grow("lab-1")
    assert [each.status for each in await everything(yard.store)] == [Status.RESERVED]
    assert await yard.served("a") == "lab-1"


async def test_what_was_leased_as_its_caller_went_the_retry_finds(yard: Yard) -> None:
    await yard.grow("lab-1")
    waiter = Waiter()
    waiter.leave()
    leased = await yard.queue.wait(yard.claim("a"), wait_sec=300, waiter=waiter)
    assert leased is not None
    assert await yard.queue.wait(yard.claim("a"), wait_sec=0) == replace(leased, is_new=False)


async def test_calls_that_wait_are_answered_when_the_process_stops(yard: Yard) -> None:
    waiting = asyncio.create_task(yard.queue.wait(yard.claim("a"), wait_sec=300))
    while await yard.store.find_ticket("a", "a") is None:
        await asyncio.sleep(0.01)
    yard.queue.stop()
    assert await waiting is None
    assert await yard.store.find_ticket("a", "a") is not None


async def test_the_history_tells_of_ticket_and_sandbox(yard: Yard) -> None:
    [ticket] = await yard.queued("a")
    await yard.grow("lab-1")
    name = await yard.served("a")
    [sandbox] = await everything(yard.store)
    assert sandbox.name == name

    async def kinds(subject: str) -> list[str]:
        page = await yard.store.events.page(EventQuery(subject=subject), limit=9, cursor=None)
        return [each.event.kind for each in page.items][::-1]

    assert await kinds(ticket.ticket_id) == ["ticket.created", "ticket.ready", "ticket.served"]
    assert await kinds(sandbox.sandbox_id) == [
        "sandbox.discovered",
        "sandbox.reserved",
        "lease.created",
    ]
    assert (await row(yard.store, sandbox.sandbox_id)).reserved_for is None

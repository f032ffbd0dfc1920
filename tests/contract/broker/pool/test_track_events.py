"""One track's story, on every engine: whoever acted, and also after the deletion."""

import time

import pytest
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.jobs import Expiry
from sandyard.broker.pool.lease_model import Extension, Replacement
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.track_events import TrackEvents
from sandyard.kit.changes.events import EventQuery, LoggedEvent
from sandyard.kit.paging import InvalidCursorError
from tests.support.broker.pools import LAB_SEC, delete, fill, row
from tests.support.broker.services import new_broker, new_leases
from tests.support.clocks import ManualClock

ANA = "operator:ana"


@pytest.fixture
def clock() -> ManualClock:
    """A day ago: a log lists no events of the future."""
    return ManualClock(time.time() - 24 * 3600)


async def story(store: PoolStore, track: str) -> list[LoggedEvent]:
    page = await TrackEvents(store, track).page(EventQuery(), limit=100, cursor=None)
    assert page.next_cursor is None
    return list(reversed(page.items))


def told(events: list[LoggedEvent]) -> list[tuple[str, str]]:
    return [(each.event.kind, each.event.actor) for each in events]


async def test_all_that_happened_to_a_tracks_sandboxes_whoever_did_it(
    store: PoolStore, clock: ManualClock
) -> None:
    await fill(store, 3)
    metrics = BrokerMetrics(CollectorRegistry())
    broker = new_broker(store, clock=clock, metrics=metrics)
    leases = new_leases(store, clock=clock, metrics=metrics, lease_max_sec=2 * LAB_SEC)
    await broker.allocate(track_id="other")
    old = (await broker.allocate(track_id="ann")).lease.sandbox_id
    clock.advance(1)
    await leases.extend(old, Extension("ann", 10), by=ANA)
    clock.advance(1)
    new = (await leases.replace(old, Replacement("ann", "no network", by=ANA))).sandbox_id
    clock.advance(2 * LAB_SEC)
    expiry = Expiry(store, clock=clock, metrics=metrics, grace_sec=0)
    assert (await expiry.run()).expired == 2
    now = int(clock.now())
    assert await delete(store, await row(store, new), now)
    expected = [
        ("lease.created", "track:ann"),
        ("lease.extended", ANA),
        ("lease.replaced", ANA),
        ("lease.created", ANA),
        ("lease.ended", "job:expiry"),
        ("sandbox.deleted", "job:cleanup"),
    ]
    events = await story(store, "ann")
    assert sorted(told(events)) == sorted(expected)
    assert told(events)[:2] == expected[:2]
    assert told(events)[-2:] == expected[-2:]
    assert events[-2].event.reason == "expired"
    assert {each.event.subject for each in events} == {old, new}


async def test_a_story_has_pages_and_filters(store: PoolStore, clock: ManualClock) -> None:
    await fill(store, 2)
    broker = new_broker(store, clock=clock, metrics=BrokerMetrics(CollectorRegistry()))
    for key in ("one", "two"):
        lease = (await broker.allocate(track_id="ann", idempotency_key=key)).lease
        clock.advance(1)
        await broker.mark_for_deletion(track_id="ann", sandbox_id=lease.sandbox_id)
    events, cursor = TrackEvents(store, "ann"), None
    seen: list[str] = []
    while True:
        page = await events.page(EventQuery(), limit=3, cursor=cursor)
        seen += [each.event_id for each in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
        with pytest.raises(InvalidCursorError):
            await TrackEvents(store, "bob").page(EventQuery(), limit=3, cursor=cursor)
    assert len(seen) == 4
    assert seen == sorted(seen, reverse=True)
    ended = await events.page(EventQuery(kind="lease.ended"), limit=10, cursor=None)
    assert [each.event.reason for each in ended.items] == ["released by its track"] * 2
    assert (await TrackEvents(store, "bob").page(EventQuery(), limit=10, cursor=None)).items == []

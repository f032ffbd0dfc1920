"""Events arrive: at least once and in order per subject, whatever fails, on every engine."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.broker.delivery.errors import EventNotFoundError, WebhookNotFoundError
from sandyard.broker.delivery.model import RetryPolicy
from sandyard.broker.pool.model import Sandbox
from sandyard.broker.verification import verify
from sandyard.kit.changes.event_kinds import UnknownEventKindError
from sandyard.kit.changes.events import EventQuery
from tests.support.broker.event_receivers import (
    Bench,
    Receiver,
    arrivals,
    delivery_bench,
    receiving,
    until,
    written,
)
from tests.support.broker.pools import discoveries, quarantined, restored
from tests.support.storage.engines import STORE_ENGINES

SUBJECTS = 30
ROUNDS = 5


@pytest.fixture(params=STORE_ENGINES)
async def bench(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[Bench]:
    async with delivery_bench(request.param, tmp_path, postgres_url, dynamo_url) as bench:
        yield bench


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving(Receiver()) as receiver:
        yield receiver


async def make_changes(bench: Bench, *, subjects: int, rounds: int) -> int:
    """Sandboxes that are quarantined and restored again and again; how many changes that is."""
    now = int(bench.clock.now())
    added = discoveries(subjects, now=now)
    await bench.pool.apply(added)
    rows: list[Sandbox] = [each.result for each in added]
    for number in range(rounds):
        decide = restored if number % 2 else quarantined
        changes = [decide(row, now) for row in rows]
        assert all(await bench.pool.apply(changes))
        rows = [each.result for each in changes]
    return subjects * (rounds + 1)


async def deliver(bench: Bench) -> int:
    await bench.settle()
    return (await bench.dispatcher().run()).delivered


async def test_a_webhook_gets_each_event_signed_and_in_order(
    bench: Bench, receiver: Receiver
) -> None:
    webhook = await bench.webhooks.create(url=receiver.url, kinds=[], note=None)
    receiver.secret = webhook.secret
    changes = await make_changes(bench, subjects=10, rounds=3)
    delivered = await deliver(bench)
    assert delivered == len(receiver.taken) >= changes
    assert not receiver.forged
    assert arrivals(receiver) == written(await bench.logged())


async def test_a_second_run_sends_nothing_again(bench: Bench, receiver: Receiver) -> None:
    await bench.webhooks.create(url=receiver.url, kinds=[], note=None)
    await make_changes(bench, subjects=3, rounds=1)
    await deliver(bench)
    calls = receiver.calls
    assert await deliver(bench) == 0
    assert receiver.calls == calls


async def test_events_from_before_it_was_made_are_not_sent(
    bench: Bench, receiver: Receiver
) -> None:
    await make_changes(bench, subjects=3, rounds=1)
    bench.clock.advance(5)
    await bench.webhooks.create(url=receiver.url, kinds=["sandbox.*"], note=None)
    assert await deliver(bench) == 0


async def test_a_webhook_for_an_unknown_kind_is_refused(bench: Bench, receiver: Receiver) -> None:
    with pytest.raises(UnknownEventKindError, match=r"`lease\.created`"):
        await bench.webhooks.create(url=receiver.url, kinds=["lease.create"], note=None)
    webhook = await bench.webhooks.create(url=receiver.url, kinds=["lease.*", "*"], note=None)
    with pytest.raises(UnknownEventKindError):
        await bench.webhooks.change(webhook.webhook_id, kinds="lease.*,nothing.*")
    assert (await bench.webhooks.get(webhook.webhook_id))[0].kinds == "lease.*,*"


async def test_a_filter_lets_its_kinds_through_alone(bench: Bench, receiver: Receiver) -> None:
    await bench.webhooks.create(url=receiver.url, kinds=["sandbox.quarantined"], note=None)
    await make_changes(bench, subjects=4, rounds=2)
    assert await deliver(bench) == 4
    assert {each["kind"] for each in receiver.taken} == {"sandbox.quarantined"}


async def test_all_arrive_in_order_though_half_fail_and_the_dispatcher_is_broken_off(
    bench: Bench, receiver: Receiver
) -> None:
    receiver.failing = 0.5
    await bench.webhooks.create(url=receiver.url, kinds=["sandbox.*"], note=None)
    changes = await make_changes(bench, subjects=SUBJECTS, rounds=ROUNDS)
    await bench.settle()
    for restart in range(3):
        dispatcher = bench.dispatcher(f"holder {restart}")
        dispatcher.start()
        enough = (restart + 1) * changes // 5
        await until(lambda enough=enough: len(receiver.taken) >= enough)
        await dispatcher.stop()
    dispatcher = bench.dispatcher("the last")
    dispatcher.start()
    expected = {
        subject: ids
        for subject, ids in written(await bench.logged()).items()
        if not subject.startswith("whk-")
    }
    assert sum(map(len, expected.values())) == changes
    await until(lambda: sum(map(len, arrivals(receiver).values())) == changes)
    await dispatcher.stop()
    assert arrivals(receiver) == expected
    assert len(receiver.taken) > changes, "none came twice: the test shows nothing"


async def test_a_receiver_that_is_away_delays_no_other(bench: Bench, receiver: Receiver) -> None:
    await bench.webhooks.create(url="http://127.0.0.1:9/away", kinds=[], note=None)
    await bench.webhooks.create(url=receiver.url, kinds=["sandbox.*"], note=None)
    await make_changes(bench, subjects=5, rounds=1)
    await bench.settle()
    dispatcher = bench.dispatcher()
    dispatcher.start()
    await until(lambda: len(receiver.taken) == 10)
    await dispatcher.stop()


async def test_a_webhook_that_fails_for_too_long_is_disabled_with_a_notice(
    bench: Bench, receiver: Receiver
) -> None:
    receiver.status = 500
    bench.retry = RetryPolicy(first_sec=0.01, longest_sec=0.01, give_up_sec=0.2)
    webhook = await bench.webhooks.create(url=receiver.url, kinds=[], note=None)
    await make_changes(bench, subjects=1, rounds=0)
    await bench.settle()
    dispatcher = bench.dispatcher()
    dispatcher.start()
    async with asyncio.timeout(60):
        while (await bench.webhooks.get(webhook.webhook_id))[0].is_enabled:
            await asyncio.sleep(0.05)
    await dispatcher.stop()
    disabled, [stream] = await bench.webhooks.get(webhook.webhook_id)
    assert "answered 500" in str(disabled.disabled_reason)
    assert stream.failing_since_ms is not None
    page = await bench.pool.events.page(
        EventQuery(subject=webhook.webhook_id), limit=1, cursor=None
    )
    assert page.items[0].event.kind == "webhook.disabled"
    assert webhook.secret not in str(page.items[0].event.data)

    receiver.status = None
    await bench.webhooks.change(webhook.webhook_id, is_enabled=True)
    await deliver(bench)
    assert arrivals(receiver) == written(await bench.logged())


async def test_an_event_is_sent_again_by_its_id_and_every_try_is_listed(
    bench: Bench, receiver: Receiver
) -> None:
    webhook = await bench.webhooks.create(url=receiver.url, kinds=["sandbox.*"], note=None)
    await make_changes(bench, subjects=2, rounds=0)
    await deliver(bench)
    event_id = str(receiver.taken[0]["event_id"])
    receiver.status = 503
    attempt = await bench.webhooks.replay(webhook.webhook_id, event_id)
    assert (attempt.status, attempt.error) == (503, "answered 503")
    with pytest.raises(EventNotFoundError):
        await bench.webhooks.replay(webhook.webhook_id, "0" * 26)
    first = await bench.webhooks.attempts(webhook.webhook_id, limit=2, cursor=None)
    rest = await bench.webhooks.attempts(webhook.webhook_id, limit=2, cursor=first.next_cursor)
    statuses = [each.status for each in [*first.items, *rest.items]]
    assert statuses == [503, 204, 204]
    assert rest.next_cursor is None


async def test_a_private_address_is_refused_when_connecting(
    bench: Bench, receiver: Receiver
) -> None:
    bench.client._allowed = ()
    webhook = await bench.webhooks.create(
        url=receiver.url.replace("127.0.0.1", "localhost"), kinds=[], note=None
    )
    await make_changes(bench, subjects=1, rounds=0)
    assert await deliver(bench) == 0
    assert receiver.calls == 0
    _, [stream] = await bench.webhooks.get(webhook.webhook_id)
    assert "private address" in str(stream.last_error)


async def test_both_secrets_sign_after_a_rotation(bench: Bench, receiver: Receiver) -> None:
    webhook = await bench.webhooks.create(url=receiver.url, kinds=["sandbox.*"], note=None)
    rotated = await bench.webhooks.rotate_secret(webhook.webhook_id)
    assert rotated.secret != webhook.secret
    for secret in (webhook.secret, rotated.secret):
        receiver.secret = secret
        await make_changes(bench, subjects=1, rounds=0) if secret == webhook.secret else None
        await deliver(bench)
    assert receiver.calls == 1
    assert not receiver.forged
    later = replace(rotated, old_secret_until_ms=1)
    assert later.secrets_at(2) == [rotated.secret]


async def test_a_deleted_webhook_is_gone_and_the_history_folds(
    bench: Bench, receiver: Receiver
) -> None:
    kept = await bench.webhooks.create(url=receiver.url, kinds=["lease.*"], note="kept")
    webhook = await bench.webhooks.create(url=receiver.url, kinds=[], note=None)
    await bench.webhooks.change(webhook.webhook_id, url=f"{receiver.url}/other", is_enabled=False)
    await bench.webhooks.delete(webhook.webhook_id)
    with pytest.raises(WebhookNotFoundError):
        await bench.webhooks.get(webhook.webhook_id)
    left = await bench.webhooks.page(limit=10, cursor=None)
    assert [each.webhook_id for each in left.items] == [kept.webhook_id]
    assert not (await verify(bench.pool, others=bench.store.webhooks)).problems


async def test_webhooks_are_listed_in_pages(bench: Bench, receiver: Receiver) -> None:
    made = [await bench.webhooks.create(url=receiver.url, kinds=[], note=None) for _ in range(5)]
    listed: list[str] = []
    cursor = None
    while len(listed) < 5:
        page = await bench.webhooks.page(limit=2, cursor=cursor)
        assert len(page.items) <= 2
        listed += [each.webhook_id for each in page.items]
        cursor = page.next_cursor
    assert cursor is None
    assert listed == sorted(each.webhook_id for each in made)

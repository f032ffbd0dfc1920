"""The provider renames sandboxes, and claims go by the new names, on every engine."""

from sandyard.broker.pool.action_model import Action
from sandyard.broker.pool.errors import NoSandboxesAvailableError
from sandyard.broker.pool.model import StaleReason, Status
from sandyard.broker.pool.sync import SyncReport
from sandyard.kit import ids
from tests.integration.broker.yard import Yard
from tests.support.broker.pools import check_history


def rename(yard: Yard, external_id: str, name: str) -> str:
    """Its id in the pool."""
    yard.simulator.sandboxes[external_id]["name"] = name
    return ids.sandbox_id(external_id)


async def claim(yard: Yard, track: str, prefix: str) -> tuple[str, str] | None:
    try:
        lease = (await yard.broker.allocate(track_id=track, name_prefix=prefix)).lease
    except NoSandboxesAvailableError:
        return None
    return lease.sandbox_id, lease.name


async def test_a_renamed_one_is_claimed_by_its_new_name_and_not_by_its_old_one(yard: Yard) -> None:
    first, second = await yard.fill(2)
    # On DynamoDB the other one is now a candidate that was read ahead under its old name.
    assert await claim(yard, "early", "sandbox-") in (
        (ids.sandbox_id(first), "sandbox-0001"),
        (ids.sandbox_id(second), "sandbox-0002"),
    )
    [free] = [row for row in (await yard.rows()).values() if row.status is Status.AVAILABLE]
    sandbox_id = rename(yard, free.external_id, "aws-1")
    yard.clock.advance(60)
    assert await yard.sync().run() == SyncReport(listed=2, renamed=1)
    assert await claim(yard, "old", "sandbox-") is None
    assert await claim(yard, "new", "aws-") == (sandbox_id, "aws-1")
    page = await yard.broker.get_history(sandbox_id, limit=10, cursor=None)
    kinds = [each.event.kind for each in page.items]
    assert kinds == ["lease.created", "sandbox.renamed", "sandbox.discovered"]
    await check_history(yard.store)


async def test_a_claim_without_a_prefix_is_told_the_new_name(yard: Yard) -> None:
    await yard.fill(2)
    await yard.lease()
    [free] = [row for row in (await yard.rows()).values() if row.status is Status.AVAILABLE]
    sandbox_id = rename(yard, free.external_id, "aws-1")
    await yard.sync().run()
    assert await claim(yard, "any", "") == (sandbox_id, "aws-1")


async def test_a_leased_one_keeps_the_name_that_its_track_was_told(yard: Yard) -> None:
    [external_id] = await yard.fill(1)
    before = await claim(yard, "track", "")
    rename(yard, external_id, "aws-1")
    assert await yard.sync().run() == SyncReport(listed=1)
    assert await claim(yard, "track", "") == before


async def test_a_quarantined_one_is_renamed_and_stays_quarantined(yard: Yard) -> None:
    [external_id] = await yard.fill(1)
    await yard.broker.act(Action.QUARANTINE, sandbox_id=ids.sandbox_id(external_id))
    row = await yard.row(rename(yard, external_id, "aws-1"))
    assert await yard.sync().run() == SyncReport(listed=1, renamed=1)
    row = await yard.row(row.sandbox_id)
    assert (row.name, row.stale_reason) == ("aws-1", StaleReason.QUARANTINED)


async def test_one_that_was_missing_comes_back_with_its_new_name(yard: Yard) -> None:
    [external_id, *_] = await yard.fill(2)
    hidden = yard.hide([external_id])
    await yard.sync().run()
    yard.show(hidden)
    sandbox_id = rename(yard, external_id, "aws-1")
    assert await yard.sync().run() == SyncReport(listed=2, unchanged=1, restored=1)
    assert await claim(yard, "new", "aws-") == (sandbox_id, "aws-1")


async def test_one_that_is_leased_while_sync_decides_is_not_renamed(yard: Yard) -> None:
    [external_id] = await yard.fill(1)
    rename(yard, external_id, "aws-1")
    yard.interrupt(lambda: yard.lease(1))
    assert await yard.sync().run() == SyncReport(listed=1)
    assert (await yard.row(ids.sandbox_id(external_id))).name == "sandbox-0001"

"""`sandyard move` between the engines: everything goes along, and one side alone is open."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa

from sandyard.broker.clients.model import Slot
from sandyard.broker.pool.model import Claim, Sandbox, Status
from sandyard.broker.wiring.pool import opened_pool
from sandyard.entrypoints.move.errors import MoveError
from sandyard.entrypoints.server.previous_engines import require_data_here
from sandyard.kit.errors import UnavailableError
from sandyard.kit.store_states import (
    RIGHT_SEC,
    MoveConflictError,
    StoreElsewhereError,
    StoreMovingError,
)
from sandyard.settings import SettingsError
from sandyard.wiring.engines import open_part_database
from sandyard.wiring.stores import on_engine
from tests.support.storage.engines import AWS_ENVIRONMENT, create_database
from tests.support.storage.filled_stores import HELD, settings_on
from tests.support.storage.moves import PARTS, CrashError, Mover

PAIRS = [("sqlite", "postgresql"), ("postgresql", "dynamodb"), ("dynamodb", "sqlite")]


@pytest.fixture
async def mover(
    tmp_path: Path, postgres_url: str, dynamo_url: str, monkeypatch: pytest.MonkeyPatch
) -> Mover:
    for name, value in AWS_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    settings = settings_on(
        postgres_url=await create_database(postgres_url),
        dynamo_url=dynamo_url,
        table=f"Pool{uuid4().hex[:8]}",
    )
    mover = Mover(settings, tmp_path)
    await mover.prepare()
    return mover


async def test_everything_goes_round_all_engines_and_back(mover: Mover) -> None:
    before = {part: await mover.contents("sqlite", part) for part in PARTS}
    undelivered = await mover.undelivered("sqlite")
    assert undelivered
    for source, target in [*PAIRS, *((there, here) for here, there in reversed(PAIRS))]:
        await mover.move(source, target)
        for part in PARTS:
            assert await mover.contents(target, part) == before[part]
            assert await mover.open_engines(part, source, target) == [target]
        assert await mover.undelivered(target) == undelivered


async def test_a_lease_goes_along_and_its_sandbox_is_not_given_to_another(mover: Mover) -> None:
    for source, target in PAIRS:
        await mover.move(source, target)
        async with opened_pool(on_engine(mover.settings, target), mover.data_dir) as pool:
            lease = await pool.store.find_lease(*HELD)
            assert lease is not None
            again = await pool.store.claim(Claim(*HELD, lease.allocated_at + 1))
            assert again is not None
            assert not again.is_new
            assert again.lease == lease
            row = await pool.store.find(lease.sandbox_id)
            assert isinstance(row, Sandbox)
            assert row.status is Status.ALLOCATED


async def test_new_events_follow_the_moved_ones(mover: Mover) -> None:
    """Numbers that the engine gives go on after the greatest that was moved."""
    await mover.move("sqlite", "dynamodb")
    await mover.move("dynamodb", "postgresql")
    async with opened_pool(on_engine(mover.settings, "postgresql"), mover.data_dir) as pool:
        known = [each async for events in pool.store.events.everything() for each in events]
        _, end = await pool.store.events.read_after(None, limit=10_000)
        claimed = await pool.store.claim(Claim("class-9", "new", 1_900_000_000))
        assert claimed is not None
        [new], _ = await pool.store.events.read_after(end, limit=100)
        assert new.event.kind == "lease.created"
        assert new.event_id not in {each.event_id for each in known}


def crash_at(number: int) -> Callable[[int], None]:
    def crash(step: int) -> None:
        if step == number:
            raise CrashError

    return crash


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("sqlite", "postgresql"),
        ("sqlite", "dynamodb"),
        pytest.param("postgresql", "dynamodb", marks=pytest.mark.torture),
    ],
)
async def test_a_move_that_broke_off_anywhere_goes_on_or_back(
    mover: Mover, here: str, there: str
) -> None:
    """After each step in turn: on, which exchanges the sides, or back."""
    if here != "sqlite":
        await mover.move("sqlite", here, parts=["broker"])
    before = await mover.contents(here, "broker")
    source, target, step = here, there, 0
    while True:
        step += 1
        mover.crash = crash_at(step)
        try:
            await mover.move(source, target, parts=["broker"])
        except CrashError:
            assert len(await mover.open_engines("broker", here, there)) <= 1
        else:
            break
        mover.crash = lambda _step: None
        is_ended = await mover.open_engines("broker", target) == [target]
        if step % 3 == 0 and not is_ended:
            await mover.move(source, target, parts=["broker"], back=True)
        else:
            if not is_ended:
                await mover.move(source, target, parts=["broker"])
            source, target = target, source
        assert await mover.open_engines("broker", here, there) == [source]
        assert await mover.contents(source, "broker") == before
    assert step > 8


async def test_a_store_that_was_moved_is_refused(mover: Mover) -> None:
    await mover.move("sqlite", "postgresql")
    with pytest.raises(StoreMovingError, match="The data of broker was moved to postgresql"):
        async with opened_pool(on_engine(mover.settings, "sqlite"), mover.data_dir):
            pass


async def test_a_process_that_runs_is_refused_from_the_withdrawal_on(mover: Mover) -> None:
    """Within the time that the move waits."""
    await mover.move("sqlite", "postgresql")
    database = open_part_database(on_engine(mover.settings, "postgresql"), mover.data_dir, "broker")
    await database.read(lambda connection: connection.execute(sa.select(1)))
    mover.crash = crash_at(6)
    with pytest.raises(CrashError):
        await mover.move("postgresql", "sqlite", parts=["broker"])
    assert mover.waited[-1] >= RIGHT_SEC
    with pytest.raises(StoreMovingError, match="is being moved to sqlite") as refused:
        await database.check()
    await database.close()
    assert refused.value.retry_after


async def test_postgresql_itself_refuses_a_late_write(mover: Mover) -> None:
    """Of a process that was suspended after it had checked its right, or does not know of it."""
    await mover.move("sqlite", "postgresql")
    await mover.move("postgresql", "sqlite")
    async with mover.store("broker", "postgresql").sql() as database:
        with pytest.raises(UnavailableError, match="moved"):
            await database.write(
                lambda connection: connection.execute(sa.text("DELETE FROM broker.tickets"))
            )


async def test_a_difference_is_found_and_the_target_stays_closed(mover: Mover) -> None:
    def crash(_step: int) -> None:
        if mover.lines and mover.lines[-1] == "broker: copied":
            raise CrashError

    mover.crash = crash
    with pytest.raises(CrashError):
        await mover.move("sqlite", "postgresql", parts=["broker"])
    mover.crash = lambda _step: None
    spoil = sa.text("UPDATE broker.tickets SET urgency = 9")
    async with mover.store("broker", "postgresql").sql() as database:
        await database.write(lambda connection: connection.execute(spoil))
    with pytest.raises(MoveError, match=r"broker.tickets: 1 rows here, 1 there"):
        await mover.move("sqlite", "postgresql", parts=["broker"])
    assert await mover.open_engines("broker", "sqlite", "postgresql") == []
    await mover.move("sqlite", "postgresql", parts=["broker"], back=True)
    assert await mover.open_engines("broker", "sqlite", "postgresql") == ["sqlite"]


async def test_a_target_with_data_is_refused(mover: Mover) -> None:
    await mover.move("sqlite", "postgresql")
    with pytest.raises(MoveError, match="Use --replace to delete it"):
        await mover.move("postgresql", "sqlite", replaces=False)
    await mover.move("postgresql", "sqlite")
    assert await mover.open_engines("broker", "sqlite", "postgresql") == ["sqlite"]


async def test_a_step_of_another_move_is_refused(mover: Mover) -> None:
    """Two at once: one of them ends with an error."""
    async with mover.store("broker", "sqlite").states() as states:
        state = await states.read()
        await mover.move("sqlite", "postgresql", parts=["broker"])
        after = await states.read()
        assert after is not None
        with pytest.raises(MoveConflictError):
            await states.change(state, after)


@pytest.mark.parametrize("engine", ["postgresql", "dynamodb"])
async def test_an_empty_engine_is_refused_while_another_one_has_the_data(
    mover: Mover, engine: str
) -> None:
    settings = on_engine(mover.settings, engine).only("broker")
    with pytest.raises(SettingsError, match=f"sandyard move --from sqlite --to {engine}"):
        await require_data_here(settings, mover.data_dir, start_empty=False)
    with pytest.raises(StoreElsewhereError, match="still has some on sqlite"):
        async with opened_pool(settings, mover.data_dir):
            pass
    await require_data_here(settings, mover.data_dir, start_empty=True)
    await require_data_here(settings, mover.data_dir, start_empty=False)


async def test_an_engine_that_was_moved_to_is_not_asked_for_another(mover: Mover) -> None:
    await mover.move("sqlite", "dynamodb")
    settings = on_engine(mover.settings, "dynamodb").only("broker", "telemetry")
    await require_data_here(settings, mover.data_dir, start_empty=False)


async def test_no_column_is_lost_on_dynamodb(mover: Mover) -> None:
    """Whatever its stores read and write: the tables of SQLite are as before, but for counts, the
    times of slots, and what nothing reads of a deleted sandbox."""

    async def columns(part: str) -> Counter[str]:
        rows = await mover.rows("sqlite", part)
        left_out = ("tally ", "client_counts ", "client_slots ")
        is_read = {row for row in rows if "'deleted'" not in row and not row.startswith(left_out)}
        return Counter({row: rows[row] for row in is_read})

    before = {part: await columns(part) for part in PARTS}
    await mover.move("sqlite", "dynamodb")
    await mover.move("dynamodb", "sqlite")
    for part in PARTS:
        assert await columns(part) == before[part]


async def test_a_clients_leases_go_along_and_count_for_no_budget(mover: Mover) -> None:
    await mover.move("sqlite", "dynamodb", parts=["broker"])
    limits = {"most": 2, "per_hour": 1, "now_ms": int(time.time()) * 1000}
    async with opened_pool(on_engine(mover.settings, "dynamodb"), mover.data_dir) as pool:
        assert await pool.clients.take_slot("lab", HELD, **limits) is Slot.USED
        assert await pool.clients.take_slot("lab", ("a", "b"), **limits) is Slot.UNUSED
        assert await pool.clients.take_slot("lab", ("a", "c"), **limits) is Slot.AT_LIMIT

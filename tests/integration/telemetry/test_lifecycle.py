"""Random lives of devices and keys, with callers at once and replicas that are opened anew."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from sandyard.kit import ids
from sandyard.kit.sql.database import PostgresDatabase, SqliteDatabase
from sandyard.telemetry.keys import ApiKeys
from sandyard.telemetry.service import Telemetry
from sandyard.telemetry.stores.sql import MIGRATIONS
from sandyard.telemetry.verification import verify
from tests.support.clocks import ManualClock
from tests.support.telemetry.engines import (
    NOW,
    Stores,
    create_postgres,
    emptied_postgres,
    hardware,
    on_dynamodb,
    on_sql,
    registration,
    service_on,
    table_prefix,
    telemetry_tables,
)

T = TypeVar("T")
DEVICES = st.integers(0, 2)
VERSIONS = st.lists(st.sampled_from(["1", "2", "3"]), min_size=1, max_size=4)
NAMES = st.sampled_from(["attic", "cellar", None])


class Fleet(RuleBasedStateMachine):
    """The model: which devices have registered, and which keys are revoked."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock(NOW)
        self.confirmations: dict[str, str] = {}
        self.revoked: dict[str, bool] = {}
        self.run(self.prepare())
        self.open()

    async def prepare(self) -> None:
        database = SqliteDatabase(Path(self.folder.name) / "telemetry.db", schema="telemetry")
        await MIGRATIONS.upgrade(database)
        await database.close()

    @asynccontextmanager
    async def replicas(self) -> AsyncIterator[list[Stores]]:
        database = SqliteDatabase(Path(self.folder.name) / "telemetry.db", schema="telemetry")
        try:
            yield [on_sql(database)]
        finally:
            await database.close()

    def open(self) -> None:
        self.context = self.replicas()
        self.stores = self.run(self.context.__aenter__())
        self.services = [service_on(each, self.clock) for each in self.stores]
        self.keys = [keys_on(each, self.clock) for each in self.stores]

    def close(self) -> None:
        self.run(self.check())
        self.run(self.context.__aexit__(None, None, None))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.close()
        self.loop.close()
        self.folder.cleanup()

    def service(self, number: int) -> Telemetry:
        return self.services[number % len(self.services)]

    @rule(device=DEVICES, versions=VERSIONS, names=st.lists(NAMES, max_size=2))
    def register_and_rename(
        self, device: int, versions: list[str], names: list[str | None]
    ) -> None:
        """All at once, each with another replica."""
        self.clock.advance(1)
        said = [replace(registration(hardware(device)), firmware_version=each) for each in versions]
        calls = [self.service(n).register(each, key_id="k") for n, each in enumerate(said)]
        if hardware(device) in self.confirmations:
            calls += [
                self.service(n).rename_device(hardware(device), name)
                for n, name in enumerate(names)
            ]
        answers = self.run(_together(calls))
        known = self.confirmations.setdefault(hardware(device), answers[0].confirmation_id)
        assert {each.confirmation_id for each in answers} == {known}

    @rule(count=st.integers(1, 3))
    def create_keys(self, count: int) -> None:
        keys = [self.keys[n % len(self.keys)].create(description=None) for n in range(count)]
        self.revoked |= {each.key_id: False for each in self.run(_together(keys))}

    @rule(data=st.data(), callers=st.integers(1, 3))
    def revoke_key(self, data: st.DataObject, callers: int) -> None:
        if self.revoked:
            key_id = data.draw(st.sampled_from(sorted(self.revoked)))
            calls = [self.keys[n % len(self.keys)].revoke(key_id) for n in range(callers)]
            assert not any(each.is_active for each in self.run(_together(calls)))
            self.revoked[key_id] = True

    @rule()
    def reopen(self) -> None:
        self.close()
        self.open()

    async def check(self) -> None:
        """The events lead to what is stored, and that is what was answered."""
        [stores, *_] = self.stores
        report = await verify(stores.telemetry, stores.keys, stores.log)
        assert report.problems == []
        assert report.subjects == len(self.confirmations) + len(self.revoked)
        devices = await stores.telemetry.find_devices(list(self.confirmations))
        assert {each.hardware_id: each.confirmation_id for each in devices.values()} == (
            self.confirmations
        )
        for key_id, is_revoked in self.revoked.items():
            key = await stores.keys.find_key(key_id)
            assert key is not None
            assert key.is_active != is_revoked


async def _together(calls: list[Coroutine[Any, Any, T]]) -> list[T]:
    return await asyncio.gather(*calls)


def keys_on(stores: Stores, clock: ManualClock) -> ApiKeys:
    return ApiKeys(
        stores.keys,
        peppers=["pepper"],
        clock=clock,
        make_key_id=ids.uuid4,
        make_api_key=ids.device_api_key,
    )


def _run(machine: type[Fleet], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_random_lives_on_sqlite() -> None:
    _run(Fleet, examples=15)


def test_random_lives_on_postgresql(postgres_url: str) -> None:
    url = asyncio.run(create_postgres(postgres_url))

    class PostgresFleet(Fleet):
        async def prepare(self) -> None:
            async with emptied_postgres(url):
                pass

        @asynccontextmanager
        async def replicas(self) -> AsyncIterator[list[Stores]]:
            databases = [PostgresDatabase(sa.make_url(url), pool_size=4) for _ in range(2)]
            try:
                yield [on_sql(each) for each in databases]
            finally:
                for each in databases:
                    await each.close()

    _run(PostgresFleet, examples=8)


def test_random_lives_on_dynamodb(dynamo_url: str) -> None:
    class DynamoFleet(Fleet):
        async def prepare(self) -> None:
            self.prefix = table_prefix()
            async with telemetry_tables(dynamo_url, prefix=self.prefix) as tables:
                await tables.create()

        @asynccontextmanager
        async def replicas(self) -> AsyncIterator[list[Stores]]:
            async with AsyncExitStack() as stack:
                yield [
                    on_dynamodb(
                        await stack.enter_async_context(
                            telemetry_tables(dynamo_url, prefix=self.prefix)
                        )
                    )
                    for _ in range(2)
                ]

    _run(DynamoFleet, examples=10)

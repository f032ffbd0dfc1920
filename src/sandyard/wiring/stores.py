"""A part's store on one engine, opened plainly: whatever its state, for moves and their checks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandyard.kit.errors import UnavailableError
from sandyard.kit.sql.database import Database, open_database
from sandyard.kit.sql.postgres_login import PostgresLogin
from sandyard.kit.sql.store_states import SqlStoreStates
from sandyard.kit.store_states import RIGHT_SEC, Phase, StoreElsewhereError, StoreStates, WriteRight
from sandyard.settings import ProviderSettings, Settings

if TYPE_CHECKING:  # imported where it is used: most installations don't need it
    from sandyard.kit.dynamo.client import Dynamo, DynamoPolicy

ENGINES = ("sqlite", "postgresql", "dynamodb")
_DYNAMODB_NAMES = {
    "broker": ("dynamo", frozenset({"ddb_table_name", "ddb_events_table_name"})),
    "telemetry": ("telemetry", frozenset({"telemetry_table_prefix"})),
}
"""By part, the settings that show that its data is, or was, on DynamoDB."""


@dataclass(frozen=True, slots=True)
class Store:
    """Where a part's data is, with the settings for this engine."""

    settings: Settings
    data_dir: Path | None
    part: str
    engine: str

    def on(self, engine: str) -> "Store":
        return replace(self, settings=on_engine(self.settings, engine), engine=engine)

    @property
    def description(self) -> str:
        """The engine, and where it is; without secrets."""
        match self.engine:
            case "sqlite":
                where = str(self.data_dir)
            case "postgresql":
                url = _login(self.settings).url
                where = f"{url.host or 'localhost'}:{url.port or 5432}/{url.database}"
            case _:
                dynamo = self.settings.dynamo
                table = event_table(self.settings, self.part)
                where = f"{dynamo.ddb_endpoint_url or dynamo.aws_region} {table}"
        return f"{self.engine} {where}"

    @asynccontextmanager
    async def states(self) -> AsyncIterator[StoreStates]:
        if self.engine == "dynamodb":
            from sandyard.kit.dynamo.items import Table
            from sandyard.kit.dynamo.store_states import DynamoStoreStates

            table = Table(open_dynamo(self.settings), event_table(self.settings, self.part))
            states = DynamoStoreStates(table)
            try:
                yield states
            finally:
                await states.close()
            return
        async with self.sql() as database:
            yield SqlStoreStates(database, self.part)

    @asynccontextmanager
    async def sql(self) -> AsyncIterator[Database]:
        database = open_sql(self.settings, self.data_dir or Path(), self.part)
        try:
            yield database
        finally:
            await database.close()


def on_engine(settings: Settings, engine: str) -> Settings:
    """The settings of a server whose parts use this engine, if they can."""
    store = "dynamodb" if engine == "dynamodb" else "sql"
    server = settings.server
    if engine == "sqlite":
        server = server.model_copy(update={"database_url": None})
    return replace(
        settings,
        server=server,
        broker=settings.broker.model_copy(update={"pool_store": store}),
        telemetry=settings.telemetry.model_copy(update={"telemetry_store": store}),
    )


def write_right(store: Store, states: StoreStates) -> WriteRight:
    """SQLite belongs to one process, which a move stops: its state is read once."""
    return WriteRight(
        store.part,
        states.read,
        lasts_sec=inf if store.engine == "sqlite" else RIGHT_SEC,
        check_unset=partial(_require_nothing_elsewhere, store, states),
    )


async def _require_nothing_elsewhere(store: Store, states: StoreStates) -> None:
    """Raise StoreElsewhereError if the store is empty and another one that is configured has the
    part's data."""
    others = other_stores(store)
    is_scanned = store.engine == "dynamodb"  # so it comes last, if at all
    if not others or (not is_scanned and not await states.is_empty()):
        return
    for other in others:
        try:
            if await _has_data(other) and (not is_scanned or await states.is_empty()):
                raise _elsewhere(store, other, f"still has some on {other.engine}")
        except StoreElsewhereError:
            raise
        except UnavailableError as error:
            trouble = f"whether {other.engine} has some is unknown: {error.message}"
            raise _elsewhere(store, other, trouble) from error


async def _has_data(store: Store) -> bool:
    async with store.states() as states:
        state = await states.read()
        is_open = state is None or state.phase is Phase.OPEN
        return is_open and not await states.is_empty()


def other_stores(store: Store) -> list[Store]:
    """Where the part's data may be otherwise, as far as the settings and the data dir show."""
    found = []
    file = None if store.data_dir is None else store.data_dir / f"{store.part}.db"
    if store.engine != "sqlite" and file is not None and file.exists():
        found.append("sqlite")
    if store.engine == "dynamodb" and store.settings.server.database_url is not None:
        found.append("postgresql")
    section, names = _DYNAMODB_NAMES.get(store.part, ("dynamo", frozenset()))
    if store.engine != "dynamodb" and getattr(store.settings, section).model_fields_set & names:
        found.append("dynamodb")
    return [store.on(engine) for engine in found]


def _elsewhere(store: Store, other: Store, trouble: str) -> StoreElsewhereError:
    move = f"sandyard move --from {other.engine} --to {store.engine}"
    if "sqlite" in (store.engine, other.engine):
        move += f" --data-dir {store.data_dir}"
    return StoreElsewhereError(
        f"{store.part} has no data on {store.engine}, and {trouble.rstrip('.')}.",
        reason=f"To take it along, run `{move}`. To begin without it, run `sandyard serve "
        "--start-empty`.",
    )


def open_sql(settings: Settings, data_dir: Path, part: str) -> Database:
    login = None if settings.server.database_url is None else _login(settings)
    size = settings.server.database_pool_size
    return open_database(login, data_dir=data_dir, part=part, pool_size=size)


def _login(settings: Settings) -> PostgresLogin:
    return PostgresLogin(settings.secret("database_url"), settings.secret("database_password"))


def open_dynamo(settings: Settings) -> "Dynamo":
    from sandyard.kit.dynamo.client import Dynamo

    return Dynamo(**dynamo_options(settings))


def dynamo_options(settings: Settings) -> dict[str, Any]:
    return {
        "region": settings.dynamo.aws_region,
        "endpoint_url": settings.dynamo.ddb_endpoint_url,
        "policy": dynamo_policy(settings.provider),
    }


def dynamo_policy(settings: ProviderSettings) -> "DynamoPolicy":
    """With the settings of retries and circuit that are set; an engine is nearer than a provider,
    so that its defaults are shorter."""
    from sandyard.kit.dynamo.client import DynamoPolicy

    every: dict[str, Any] = {
        "backoff_base_ms": {"backoff_base_sec": settings.backoff_base_ms / 1000},
        "backoff_max_ms": {"backoff_max_sec": settings.backoff_max_ms / 1000},
        "circuit_breaker_threshold": {"circuit_threshold": settings.circuit_breaker_threshold},
        "circuit_breaker_timeout_sec": {
            "circuit_timeout_sec": settings.circuit_breaker_timeout_sec
        },
    }
    policy = DynamoPolicy()
    for name in every.keys() & settings.model_fields_set:
        policy = replace(policy, **every[name])
    return policy


def event_table(settings: Settings, part: str) -> str:
    if part == "telemetry":
        return f"{settings.telemetry.telemetry_table_prefix}telemetry_events"
    dynamo = settings.dynamo
    return dynamo.ddb_events_table_name or f"{dynamo.ddb_table_name}Events"

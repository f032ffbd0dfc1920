"""Failed logins and known networks, on SQLite or PostgreSQL."""

from collections.abc import Callable
from datetime import datetime

import sqlalchemy as sa

from sandyard.kit.sql.database import Database, upsert
from sandyard.kit.sql.transitions import lock_name
from sandyard.platform.accounts.logins import model
from sandyard.platform.schema.tables import login_failures, login_networks

_failure = login_failures.c
_known = login_networks.c


class SqlLoginAttempts:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def is_known(self, account_id: str, network: str, *, now: datetime) -> bool:
        statement = sa.select(_known.last_login_at).where(
            _known.account_id == account_id,
            _known.network == network,
            _known.last_login_at > now - model.KNOWN_FOR,
        )
        return await self._database.read(
            lambda connection: connection.execute(statement).first() is not None
        )

    async def change(
        self, attempt: model.LoginAttempt, decide: Callable[[model.Counts], model.Counts]
    ) -> model.Counts:
        keys = attempt.keys

        def work(connection: sa.Connection) -> model.Counts:
            for key in sorted(keys.values()):
                lock_name(connection, f"login {key}")
            decided = decide(_read(connection, attempt))
            if decided:
                _write(connection, {keys[each]: decided[each] for each in decided})
            return decided

        return await self._database.write(work)

    async def remember(self, account_id: str, network: str, *, now: datetime) -> None:
        others = (
            sa.select(_known.network)
            .where(_known.account_id == account_id)
            .order_by(_known.last_login_at.desc(), _known.network)
            .limit(model.KNOWN_NETWORKS)
        )
        too_many = login_networks.delete().where(
            _known.account_id == account_id, _known.network.not_in(others)
        )

        def work(connection: sa.Connection) -> None:
            statement = upsert(connection, login_networks).values(
                account_id=account_id, network=network, last_login_at=now
            )
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=[_known.account_id, _known.network],
                    set_={"last_login_at": statement.excluded.last_login_at},
                )
            )
            connection.execute(too_many)

        await self._database.write(work)

    async def prune(self, *, now: datetime) -> int:
        over = login_failures.delete().where(_failure.window_ends_at <= now)
        forgotten = login_networks.delete().where(_known.last_login_at <= now - model.KNOWN_FOR)
        return await self._database.write(
            lambda connection: (
                connection.execute(over).rowcount + connection.execute(forgotten).rowcount
            )
        )


def _read(
    connection: sa.Connection, attempt: model.LoginAttempt
) -> dict[model.Counter, model.Failures]:
    counters = {key: counter for counter, key in attempt.keys.items()}
    statement = sa.select(login_failures).where(_failure.key.in_(list(counters)))
    return {
        counters[row.key]: model.Failures(row.failures, row.window_ends_at)
        for row in connection.execute(statement)
    }


def _write(connection: sa.Connection, decided: dict[str, model.Failures]) -> None:
    statement = upsert(connection, login_failures)
    columns = ("failures", "window_ends_at")
    statement = statement.on_conflict_do_update(
        index_elements=[_failure.key],
        set_={name: statement.excluded[name] for name in columns},
    )
    rows = [
        {"key": key, "failures": failures.count, "window_ends_at": failures.window_ends_at}
        for key, failures in sorted(decided.items())
    ]
    connection.execute(statement, rows)

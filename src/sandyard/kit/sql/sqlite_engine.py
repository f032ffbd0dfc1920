"""Connections to SQLite: their setup, and how their transactions begin."""

import sqlite3
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event

WITHOUT_TRANSACTION = {"without_transaction": True}
"""For connections in which each statement is its own transaction."""


def sqlite_engine(path: Path, schema: str, *, begin: str, readers: int) -> sa.Engine:
    """Connections with the file attached under the part's name, so that `broker.sandboxes` names
    the same table on both engines."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", timeout=5, check_same_thread=False)
        connection.isolation_level = None  # we begin transactions ourselves, in the required mode
        connection.execute(f"ATTACH DATABASE ? AS {schema}", (str(path),))
        connection.execute(f"PRAGMA {schema}.journal_mode=WAL")
        connection.execute(f"PRAGMA {schema}.synchronous=FULL")
        connection.execute(f"PRAGMA {schema}.cache_size=-16384")  # kB; for each of five connections
        connection.execute(f"PRAGMA {schema}.wal_autocheckpoint=8000")
        connection.execute(f"PRAGMA {schema}.secure_delete=ON")
        connection.execute(f"PRAGMA {schema}.mmap_size=268435456")
        connection.execute("PRAGMA foreign_keys=ON")
        if readers:
            connection.execute("PRAGMA query_only=ON")
        return connection

    engine = sa.create_engine(
        "sqlite://",
        creator=connect,
        poolclass=sa.QueuePool,
        pool_size=readers or 1,
        max_overflow=0,
    )

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: sa.Connection) -> None:
        if not connection.get_execution_options().keys() & WITHOUT_TRANSACTION:
            connection.exec_driver_sql(begin)

    return engine

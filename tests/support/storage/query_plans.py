"""The statements that engines are sent, and how they carry them out."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from sandyard.kit.sql.database import Database

Statement = tuple[str, Any]
"""With its parameters."""
_SCAN = re.compile(r"(?:SCAN|Seq Scan on) (?:\w+\.)?(\w+)")


@contextmanager
def sent(about: str) -> Iterator[list[Statement]]:
    """Every statement with this text that an engine is given inside."""
    statements: list[Statement] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if about in statement:
            statements.append((statement, parameters))

    event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(sa.Engine, "before_cursor_execute", note)


async def plan_of(database: Database, statement: Statement) -> str:
    """As the engine tells it, which has counted its rows before."""
    is_sqlite = database.name == "sqlite"
    text, parameters = statement

    def work(connection: sa.Connection) -> str:
        connection.exec_driver_sql("ANALYZE")
        if not is_sqlite:  # in a small table PostgreSQL scans though it need not
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        explain = "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN"
        return str(connection.exec_driver_sql(f"{explain} {text}", parameters).all())

    return await database.write(work)


def scanned(plan: str) -> list[str]:
    """The tables that are read from one end to the other."""
    return _SCAN.findall(plan)

"""Previews elsewhere, checks, exact rates, milliseconds, charges, programs, isolation, kept memory,
images, access versions, idempotency keys, SSH, bound secrets and volumes."""

from functools import partial

import sqlalchemy as sa

from sandyard.kit.sql.migrations import edit_definition
from sandyard.platform.schema import tables

oldest_code = "0023"

_CHECKED = (tables.users, tables.projects, tables.notifications, tables.sandboxes)
_MAY_BE_NULL = (tables.billing_records.c.usage_id, tables.sandbox_usage.c.sandbox_id)
_OF_PREVIEWS = (
    *("sandbox_id", "preview_url", "sandbox_info", "preview_revision", "preview_attempt"),
    *("preview_attempt_until", "files_version"),
)


def upgrade(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        _change_on_postgres(connection)
    else:
        _change_on_sqlite(connection)
    projects = tables.projects
    there = {each["name"] for each in sa.inspect(connection).get_columns(projects.name, "platform")}
    for name in there.intersection(_OF_PREVIEWS):
        connection.exec_driver_sql(f"ALTER TABLE {projects.fullname} DROP COLUMN {name}")


def _change_on_postgres(connection: sa.Connection) -> None:
    """`project_files` stays for the release before, which deletes from it."""
    for function in ("platform.count_change", "previews.take_from_projects"):
        connection.exec_driver_sql(f"DROP FUNCTION IF EXISTS {function} CASCADE")
    connection.exec_driver_sql("DROP FUNCTION IF EXISTS previews.give_to_projects CASCADE")
    connection.exec_driver_sql("DELETE FROM platform.jobs WHERE holder = 'a newer release'")
    for table in _CHECKED:
        connection.exec_driver_sql(f"ALTER TABLE {table.fullname} ADD {_check_of(table)}")
    for column in _MAY_BE_NULL:
        connection.exec_driver_sql(
            f"ALTER TABLE {column.table.fullname} ALTER COLUMN {column.name} DROP NOT NULL"
        )


def _change_on_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql("DROP TABLE IF EXISTS platform.project_files")
    for table in _CHECKED:
        edit_definition(connection, table, partial(_with_clause, clause=_check_of(table)))
    for column in _MAY_BE_NULL:
        found = f"{column.name} VARCHAR(25)"
        change = partial(_replaced, before=f"{found} NOT NULL,", after=f"{found},")
        edit_definition(connection, column.table, change)
    change = partial(_replaced, before="last_used_at DATETIME", after="last_used_at VARCHAR(27)")
    edit_definition(connection, tables.sandboxes, change)


def _with_clause(sql: str, clause: str) -> str:
    return f"{sql[: sql.rindex(')')]}, {clause})"


def _replaced(sql: str, before: str, after: str) -> str:
    return sql.replace(before, after)


def _check_of(table: sa.Table) -> str:
    [check] = [each for each in table.constraints if isinstance(each, sa.CheckConstraint)]
    return f"CONSTRAINT {check.name} CHECK ({check.sqltext})"

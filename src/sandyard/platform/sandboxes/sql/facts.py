"""Further facts of decisions about sandboxes, read from SQLite or PostgreSQL."""

from typing import Any

import sqlalchemy as sa

from sandyard.kit.sql.transitions import FactReader
from sandyard.platform.projects.model import ProjectStatus
from sandyard.platform.quotas.model import QuotaCheck, QuotaRequest, Resources, check_quota
from sandyard.platform.sandboxes.model import ACTIVE, ProjectState
from sandyard.platform.schema.tables import projects, sandboxes

is_active = sandboxes.c.status.in_(sorted(ACTIVE))
"""A condition: it is starting or running."""


def read_quota_check(connection: sa.Connection, request: QuotaRequest) -> QuotaCheck:
    return check_quota(request, read_in_use(connection, request.account_id))


def read_in_use(connection: sa.Connection, account_id: str) -> Resources:
    column = sandboxes.c
    taken = connection.execute(
        sa.select(
            sa.func.count().label("sandboxes"),
            sa.func.coalesce(sa.func.sum(column.cpu_spec), 0.0).label("cpu"),
            sa.func.coalesce(sa.func.sum(column.memory_spec), 0.0).label("memory_gb"),
        ).where(column.owner_account_id == account_id, is_active)
    ).one()
    return Resources(taken.sandboxes, taken.cpu, taken.memory_gb)


def read_project(
    connection: sa.Connection, account_id: str, project_id: str | None
) -> ProjectState | None:
    row = connection.execute(_own_project(account_id, project_id)).first()
    return None if row is None else _project_state(row)


def _locked_project(connection: sa.Connection, fact: ProjectState) -> ProjectState | None:
    """Locks the row too, because archiving the project takes no lock by its name."""
    statement = _own_project(fact.owner_account_id, fact.project_id)
    row = connection.execute(statement.with_for_update(read=True)).first()
    return None if row is None else _project_state(row)


def _own_project(account_id: str, project_id: str | None) -> sa.Select[Any]:
    column = projects.c
    which = column.is_default if project_id is None else column.project_id == project_id
    return sa.select(column.project_id, column.owner_account_id, column.status).where(
        column.owner_account_id == account_id, column.deleted_at.is_(None), which
    )


def _project_state(row: Any) -> ProjectState:
    is_archived = row.status == ProjectStatus.ARCHIVED
    return ProjectState(row.project_id, row.owner_account_id, is_archived)


SANDBOX_FACTS = {
    ProjectState: FactReader(lambda fact: f"project {fact.project_id}", _locked_project),
    QuotaCheck: FactReader(
        lambda fact: f"quota {fact.request.account_id}",
        lambda connection, fact: read_quota_check(connection, fact.request),
    ),
}
"""A project's lock is shared with its deletion."""

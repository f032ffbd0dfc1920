"""Further facts of decisions about sandboxes, read from SQLite or PostgreSQL."""

from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from sandyard.kit.sizes import GIGABYTE
from sandyard.kit.sql.transitions import FactReader
from sandyard.platform.projects.model import ProjectContents, ProjectStatus
from sandyard.platform.projects.sql import project_lock
from sandyard.platform.quotas.model import QuotaCheck, QuotaRequest, Resources, check_quota
from sandyard.platform.sandboxes.model import ACTIVE, ProjectState, Status
from sandyard.platform.schema.tables import projects, sandboxes, templates, users, volumes

is_active = sandboxes.c.status.in_(sorted(ACTIVE))
"""A condition: it is starting or running."""


def read_quota_check(connection: sa.Connection, request: QuotaRequest) -> QuotaCheck:
    in_use = read_in_use(connection, request.account_id, workspace_gb=request.storage_gb)
    stored_gb = round(in_use.storage_gb + request.stored_elsewhere_gb, 6)
    return check_quota(request, replace(in_use, storage_gb=stored_gb))


def read_in_use(connection: sa.Connection, account_id: str, *, workspace_gb: float) -> Resources:
    """`workspace_gb` is what one sandbox may store while it runs."""
    column = sandboxes.c
    taken = connection.execute(
        sa.select(
            _total(1, is_active).label("sandboxes"),
            _total(column.cpu_spec, is_active).label("cpu"),
            _total(column.memory_spec, is_active).label("memory_gb"),
            _total(1, _has_workspace).label("workspaces"),
            _total(column.snapshot_bytes).label("snapshot_bytes"),
            _archive_bytes(account_id).label("archive_bytes"),
        ).where(column.owner_account_id == account_id, column.status != Status.RECYCLED)
    ).one()
    stored_gb = (int(taken.snapshot_bytes) + int(taken.archive_bytes)) / GIGABYTE
    stored_gb += int(taken.workspaces) * workspace_gb
    return Resources(int(taken.sandboxes), taken.cpu, taken.memory_gb, stored_gb)


_has_workspace = sa.or_(
    is_active,
    sa.and_(
        sandboxes.c.node.is_not(None),
        sandboxes.c.started_at.is_not(None),
        sandboxes.c.snapshot_taken_at.is_(None)
        | (sandboxes.c.snapshot_taken_at < sandboxes.c.started_at),
    ),
)
"""A condition: it is active, or the files of its last run could not be stored."""


def _total(value: Any, which: Any = None) -> sa.ColumnElement[Any]:
    counted = value if which is None else sa.case((which, value), else_=0)
    return sa.func.coalesce(sa.func.sum(counted), 0)


def _archive_bytes(account_id: str) -> sa.ScalarSelect[Any]:
    column = templates.c
    is_theirs = column.owner_account_id == account_id, column.deleted_at.is_(None)
    return sa.select(_total(column.archive_bytes)).where(*is_theirs).scalar_subquery()


def read_project(
    connection: sa.Connection, account_id: str, project_id: str | None
) -> ProjectState | None:
    row = connection.execute(_own_project(account_id, project_id)).first()
    return None if row is None else _project_state(row)


def _locked_project(connection: sa.Connection, fact: ProjectState) -> ProjectState | None:
    """Locks the project's row too, because archiving it takes no lock by its name."""
    statement = _own_project(fact.owner_account_id, fact.project_id)
    locked = statement.with_for_update(read=True, of=projects)
    row = connection.execute(locked).first()
    return None if row is None else _project_state(row)


def _own_project(account_id: str, project_id: str | None) -> sa.Select[Any]:
    column = projects.c
    which = column.is_default if project_id is None else column.project_id == project_id
    return (
        sa.select(column.project_id, column.owner_account_id, column.status, users.c.is_active)
        .join(users, users.c.account_id == column.owner_account_id)
        .where(column.owner_account_id == account_id, column.deleted_at.is_(None), which)
    )


def _project_state(row: Any) -> ProjectState:
    is_archived = row.status == ProjectStatus.ARCHIVED
    return ProjectState(row.project_id, row.owner_account_id, is_archived, row.is_active)


def _read_contents(connection: sa.Connection, about: ProjectContents) -> ProjectContents:
    column = sandboxes.c
    held = sa.exists().where(
        column.project_id == about.project_id, column.status != Status.RECYCLED
    )
    stored = sa.exists().where(
        volumes.c.project_id == about.project_id, volumes.c.deleted_at.is_(None)
    )
    found = connection.scalar(sa.select(sa.or_(held, stored)))
    return ProjectContents(about.project_id, bool(found))


SANDBOX_FACTS = {
    ProjectContents: FactReader(lambda fact: project_lock(fact.project_id), _read_contents),
    ProjectState: FactReader(lambda fact: project_lock(fact.project_id), _locked_project),
    QuotaCheck: FactReader(
        lambda fact: f"quota {fact.request.account_id}",
        lambda connection, fact: read_quota_check(connection, fact.request),
    ),
}
"""A project's lock is shared with its deletion."""

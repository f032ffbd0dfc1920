"""What a sandbox needs before it may be made or started: its template, its project, room."""

from typing import Any

import sqlalchemy as sa

from sandyard.platform.sandboxes.errors import (
    ProjectNotUsableError,
    ProjectReadOnlyError,
    QuotaExceededError,
)
from sandyard.platform.sandboxes.model import ACTIVE, Quota, Sandbox
from sandyard.platform.sandboxes.ports import Usable
from sandyard.platform.tables import projects, sandboxes, templates, users

_column = sandboxes.c
active = _column.status.in_(sorted(ACTIVE))
"""A condition: it starts or runs."""


def find_usable(
    connection: sa.Connection, account_id: str, *, template_id: str, project_id: str | None
) -> Usable:
    template = connection.execute(_usable_template(account_id, template_id)).first()
    project = connection.execute(_own_project(account_id, project_id)).first()
    return Usable(
        repository_url=template.repository_url if template else None,
        min_cpu=template.min_cpu_required if template else 0,
        min_memory_gb=template.min_memory_required if template else 0,
        project_id=project.project_id if project else None,
        project_is_archived=project is not None and project.status == "archived",
    )


def lock_project(connection: sa.Connection, account_id: str, project_id: str | None) -> None:
    """It stays as it is until the commit: neither deleted nor archived beside the new sandbox."""
    project = connection.execute(_own_project(account_id, project_id).with_for_update()).first()
    if project is None:
        raise ProjectNotUsableError
    if project.status == "archived":
        raise ProjectReadOnlyError


def require_room(connection: sa.Connection, sandbox: Sandbox, quota: Quota) -> None:
    """The account's row is held until the commit, so that no two starts see the same room."""
    account = sandbox.owner_account_id
    connection.execute(sa.select(users.c.id).where(users.c.account_id == account).with_for_update())
    taken = connection.execute(
        sa.select(
            sa.func.count().label("sandboxes"),
            sa.func.coalesce(sa.func.sum(_column.cpu_spec), 0).label("cpu"),
            sa.func.coalesce(sa.func.sum(_column.memory_spec), 0).label("memory_gb"),
        ).where(_column.owner_account_id == account, active)
    ).one()
    asked = {"sandboxes": 1, "cpu": sandbox.cpu_spec, "memory_gb": sandbox.memory_spec}
    over = {
        name: {"limit": limit, "in_use": in_use, "asked": asked[name]}
        for name in asked
        if (in_use := getattr(taken, name)) + asked[name] > (limit := getattr(quota, name))
    }
    if over:
        raise QuotaExceededError(details=over)


def _usable_template(account_id: str, template_id: str) -> sa.Select[Any]:
    column = templates.c
    may_see = sa.or_(column.is_official, column.is_public, column.owner_account_id == account_id)
    return sa.select(templates).where(
        column.template_id == template_id, column.deleted_at.is_(None), may_see
    )


def _own_project(account_id: str, project_id: str | None) -> sa.Select[Any]:
    column = projects.c
    which = column.is_default if project_id is None else column.project_id == project_id
    return sa.select(projects).where(
        column.owner_account_id == account_id, column.deleted_at.is_(None), which
    )

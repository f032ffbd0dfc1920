"""How many entities of a kind accounts have, on SQLite or PostgreSQL."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from sandyard.kit.sql.database import Database
from sandyard.kit.sql.transitions import FactReader
from sandyard.platform.quotas.model import CountQuota, ResourceKind, ResourceQuota
from sandyard.platform.sandboxes.model import Status
from sandyard.platform.schema.tables import (
    images,
    projects,
    sandboxes,
    templates,
    variables,
    volumes,
)

_recycled = sa.select(sandboxes.c.sandbox_id).where(sandboxes.c.status == Status.RECYCLED)
_COUNTED = {
    ResourceKind.IMAGES: (images, images.c.deleted_at.is_(None)),
    ResourceKind.PROJECTS: (projects, projects.c.deleted_at.is_(None)),
    ResourceKind.SANDBOXES: (sandboxes, sandboxes.c.status != Status.RECYCLED),
    ResourceKind.TEMPLATES: (templates, templates.c.deleted_at.is_(None)),
    ResourceKind.VARIABLES: (variables, variables.c.holder_id.not_in(_recycled)),
    ResourceKind.VOLUMES: (volumes, volumes.c.deleted_at.is_(None)),
}


async def count_quotas(
    database: Database, limits: Mapping[ResourceKind, int], account_id: str
) -> Sequence[ResourceQuota]:
    """Counts of an account's limited entities, running or not."""
    counts = await database.read(
        lambda connection: [_count(connection, kind, account_id) for kind in limits]
    )
    return [
        ResourceQuota(f"{kind}_total", count, limit)
        for (kind, limit), count in zip(limits.items(), counts, strict=True)
    ]


def _read_count_quota(connection: sa.Connection, about: CountQuota) -> CountQuota:
    return about.with_count(_count(connection, about.kind, about.account_id))


def _count(connection: sa.Connection, kind: ResourceKind, account_id: str) -> int:
    table, is_there = _COUNTED[kind]
    statement = sa.select(sa.func.count()).where(table.c.owner_account_id == account_id, is_there)
    count: int = connection.execute(statement).scalar_one()
    return count


COUNT_QUOTAS = FactReader(lambda fact: f"quota {fact.kind} {fact.account_id}", _read_count_quota)
"""Entities of the kind are made under this lock."""

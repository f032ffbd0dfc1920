"""Volumes on SQLite or PostgreSQL."""

from collections.abc import Sequence

import sqlalchemy as sa

from sandyard.kit.sql.entities import find_entities
from sandyard.kit.sql.transitions import EntityTable, FactReader
from sandyard.platform.entities.sql import SqlListing, SqlStoredThings
from sandyard.platform.sandboxes.model import ACTIVE
from sandyard.platform.schema.tables import sandboxes, volumes
from sandyard.platform.volumes.errors import VolumeNameTakenError
from sandyard.platform.volumes.model import Holder, Volume, VolumeUse

VOLUMES = EntityTable(Volume, volumes)
_volume, _sandbox = volumes.c, sandboxes.c
_is_there = _volume.deleted_at.is_(None)


class SqlVolumeStore(SqlStoredThings[Volume]):
    name_taken = VolumeNameTakenError
    cursor_name = "volumes"
    listing = SqlListing(VOLUMES)

    async def bytes_of(self, account_id: str) -> int:
        total = sa.select(sa.func.coalesce(sa.func.sum(_volume.size_bytes), 0))
        statement = total.where(_volume.owner_account_id == account_id, _is_there)
        return int(
            await self._database.read(lambda connection: connection.execute(statement).scalar_one())
        )

    async def of_node(self, node: str) -> Sequence[Volume]:
        return await find_entities(self._database, VOLUMES, _is_there, _volume.node == node)


def _read_use(connection: sa.Connection, about: VolumeUse) -> VolumeUse:
    named = sa.select(volumes).where(
        _volume.owner_account_id == about.account_id, _is_there, _volume.name.in_(about.names)
    )
    active = sa.select(_sandbox.sandbox_id, _sandbox.volumes).where(
        _sandbox.owner_account_id == about.account_id,
        _sandbox.status.in_(sorted(ACTIVE)),
        _sandbox.volumes.is_not(None),
    )
    holders = [
        Holder(each["name"], row.sandbox_id, each["read_only"])
        for row in connection.execute(active.order_by(_sandbox.id))
        for each in row.volumes or ()
        if each["name"] in about.names
    ]
    found = map(VOLUMES.entity_of, connection.execute(named.order_by(_volume.id)))
    return VolumeUse(about.account_id, about.names, tuple(found), tuple(holders))


VOLUME_USE = FactReader(lambda fact: f"volumes {fact.account_id}", _read_use)
"""Volumes are mounted and deleted under this lock."""

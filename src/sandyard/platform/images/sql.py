"""Images on SQLite or PostgreSQL."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from sandyard.kit.sql.entities import find_entities, find_entity
from sandyard.kit.sql.transitions import EntityTable, FactReader
from sandyard.platform.entities.sql import SqlListing, SqlStoredThings
from sandyard.platform.images.model import Image, ImageStatus, ImageUse
from sandyard.platform.schema.tables import images, sandboxes, templates

IMAGES = EntityTable(Image, images)
_image = images.c
_is_there = _image.deleted_at.is_(None)


class SqlImageStore(SqlStoredThings[Image]):
    cursor_name = "images"
    listing = SqlListing(IMAGES, searched=(_image.reference,))

    async def is_usable(self, account_id: str, image_id: str) -> bool:
        template = templates.c
        shown = template.is_official | template.is_public
        by_template = sa.exists().where(
            template.environment == image_id, template.deleted_at.is_(None), shown
        )
        usable = (_image.owner_account_id == account_id) | by_template
        this = (_image.image_id == image_id, _is_there, usable)
        return await find_entity(self._database, IMAGES, *this) is not None

    async def ready_of(self, account_id: str) -> Sequence[Image]:
        own = _image.owner_account_id == account_id
        return await find_entities(
            self._database, IMAGES, own, _is_there, _image.status == ImageStatus.READY
        )

    async def pulling(self) -> Sequence[Image]:
        is_pulling = _image.status == ImageStatus.PULLING
        return await find_entities(self._database, IMAGES, _is_there, is_pulling)

    async def living(self, *, limit: int, after: str) -> Sequence[Image]:
        wanted = (_is_there, _image.status != ImageStatus.FAILED, _image.image_id > after)
        order = _image.image_id
        return await find_entities(self._database, IMAGES, *wanted, limit=limit, order=order)

    async def note_progress(
        self, image_id: str, *, pulled_bytes: int, total_bytes: int, at: datetime
    ) -> None:
        noted = (
            images.update()
            .where(_image.image_id == image_id)
            .values(pulled_bytes=pulled_bytes, total_bytes=total_bytes, seen_at=at)
        )
        await self._database.write(lambda connection: connection.execute(noted))


def _read_use(connection: sa.Connection, about: ImageUse) -> ImageUse:
    template, sandbox = templates.c, sandboxes.c
    uses = (
        sa.select(template.id).where(
            template.environment == about.image_id, template.deleted_at.is_(None)
        ),
        sa.select(sandbox.id).where(
            sandbox.environment == about.image_id, sandbox.status != "recycled"
        ),
    )
    found = (connection.execute(each.limit(1)).first() for each in uses)
    return replace(about, is_used=any(row is not None for row in found))


IMAGE_USE = FactReader(lambda fact: f"image {fact.image_id}", _read_use)

"""Queries of projects on the sandboxes' table."""

import sqlalchemy as sa

from sandyard.platform.projects.model import ProjectContents
from sandyard.platform.sandboxes.model import Status
from sandyard.platform.schema.tables import sandboxes


def read_contents(connection: sa.Connection, about: ProjectContents) -> ProjectContents:
    """Whether the project has sandboxes that are not recycled."""
    held = sa.exists().where(
        sandboxes.c.project_id == about.project_id, sandboxes.c.status != Status.RECYCLED
    )
    has_sandboxes = bool(connection.scalar(sa.select(held)))
    return ProjectContents(about.project_id, has_sandboxes)

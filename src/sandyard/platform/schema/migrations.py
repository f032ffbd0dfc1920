"""The Platform's schema, and how it is brought to a version."""

from pathlib import Path

from sandyard.kit.sql.migrations import Migrations
from sandyard.platform.schema.tables import metadata

MIGRATIONS = Migrations(metadata, Path(__file__).parents[1] / "migrations")

"""The schema of Previews and its migrations."""

from pathlib import Path

from sandyard.kit.sql.migrations import Migrations
from sandyard.previews.stores.tables import metadata

MIGRATIONS = Migrations(metadata, Path(__file__).parent / "migrations")

"""The Platform's database for commands: its events, and their verification."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandyard.kit.changes.events import EventLog
from sandyard.kit.sql.database import Database
from sandyard.platform.events.entities import platform_events
from sandyard.platform.events.verification import verify_platform
from sandyard.platform.schema.migrations import MIGRATIONS
from sandyard.settings import Settings
from sandyard.wiring.engines import open_part_database, verification_of
from sandyard.wiring.spec import Counting, Verification


@asynccontextmanager
async def _opened(settings: Settings, data_dir: Path) -> AsyncIterator[Database]:
    """The Platform's database, for a command that reads it."""
    database = open_part_database(settings, data_dir, MIGRATIONS.part)
    try:
        await MIGRATIONS.require_head(database)
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def open_platform_log(settings: Settings, data_dir: Path) -> AsyncIterator[EventLog]:
    async with _opened(settings, data_dir) as database:
        yield platform_events(database)


async def verify_platform_data(
    settings: Settings, data_dir: Path, counting: Counting
) -> Verification:
    async with _opened(settings, data_dir) as database:
        with counting("verify platform", None) as progress:
            report = await verify_platform(database, progress=progress)
    return verification_of("things of accounts", report)

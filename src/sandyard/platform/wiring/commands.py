"""The Platform's engine alone, for commands: its events, and their verification."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandyard.kit.changes.events import EventLog
from sandyard.platform.schema.migrations import MIGRATIONS
from sandyard.settings import Settings
from sandyard.wiring.engines import open_for_command, verification_of
from sandyard.wiring.spec import Counting, Verification


@asynccontextmanager
async def open_platform_log(settings: Settings, data_dir: Path) -> AsyncIterator[EventLog]:
    from sandyard.platform.events.entities import platform_events

    async with open_for_command(settings, data_dir, MIGRATIONS) as database:
        yield platform_events(database)


async def verify_platform_data(
    settings: Settings, data_dir: Path, counting: Counting
) -> Verification:
    from sandyard.platform.events.verification import verify_platform

    async with open_for_command(settings, data_dir, MIGRATIONS) as database:
        with counting("verify platform", None) as progress:
            report = await verify_platform(database, progress=progress)
    return verification_of("things of accounts", report)

"""The spec of Previews."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from sandyard.wiring.spec import (
    BuildContext,
    Counting,
    JobSpec,
    PartSpec,
    Verification,
    get_part,
    imported,
)

if TYPE_CHECKING:
    from sandyard.bootstrap.previews import PreviewsPart
    from sandyard.kit.changes.events import EventLog
    from sandyard.kit.sql.migrations import Migrations
    from sandyard.settings import Settings
    from sandyard.wiring.part_engine import PartEngine


async def _build(context: BuildContext) -> "PreviewsPart":
    build = await asyncio.to_thread(imported, "sandyard.bootstrap.previews:build_previews")
    from sandyard.platform.wiring.part import PlatformPart

    platform = get_part(context.parts, PlatformPart)
    part: PreviewsPart = build(
        context.settings,
        platform,
        data_dir=context.data_dir,
        clock=context.clock,
        database=context.find_database("previews"),
    )
    return part


def _engine(settings: "Settings", data_dir: Path) -> "PartEngine":
    from sandyard.previews.stores.schema import MIGRATIONS
    from sandyard.previews.stores.tables import jobs
    from sandyard.wiring.engines import e2b_key
    from sandyard.wiring.part_engine import PartEngine

    if settings.previews.preview_provider == "e2b":
        e2b_key(settings.e2b, needed_for="PREVIEW_PROVIDER=e2b")
    return PartEngine(settings, data_dir, MIGRATIONS, jobs)


def _migrations() -> "Migrations":
    from sandyard.previews.stores.schema import MIGRATIONS

    return MIGRATIONS


async def _verify(settings: "Settings", data_dir: Path, counting: Counting) -> Verification:
    from sandyard.bootstrap.previews import verify_previews

    return await verify_previews(settings, data_dir, counting)


def _missing(settings: "Settings") -> Sequence[str]:
    from sandyard.runtime.local.server.requirements import missing_for_previews

    if settings.previews.preview_provider != "local":
        return ()
    return missing_for_previews(settings.sandboxes.sandbox_isolation)


def _log(settings: "Settings", data_dir: Path) -> AbstractAsyncContextManager["EventLog"]:
    from sandyard.bootstrap.previews import open_previews_log

    return open_previews_log(settings, data_dir)


END_PREVIEWS = JobSpec("end-previews", "end previews of deleted projects and deactivated accounts")
DELETED_PROJECTS = JobSpec("deleted-projects", "remove the files and previews of deleted projects")
SWEEP = JobSpec(
    "previews",
    "end orphaned previews of this node",
    absent="E2B ends previews by itself",
)
EVENTS = JobSpec("previews-events", "remove events after their retention")

PREVIEWS = PartSpec(
    "previews",
    _build,
    settings=("previews", "e2b"),
    routers=(
        "sandyard.previews.http.router",
        "sandyard.previews.http.web",
    ),
    needs=("platform",),
    engine=_engine,
    jobs=(END_PREVIEWS, DELETED_PROJECTS, SWEEP, EVENTS),
    migrations=_migrations,
    verify=_verify,
    log=_log,
    missing=_missing,
)

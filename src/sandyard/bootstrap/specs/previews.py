"""The spec of Previews."""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sandyard.wiring.spec import BuildContext, JobSpec, PartSpec, get_part, imported, lazy

if TYPE_CHECKING:
    from sandyard.bootstrap.previews import PreviewsPart
    from sandyard.settings import Settings
    from sandyard.wiring.engines import SqlEngine


async def _build(context: BuildContext) -> "PreviewsPart":
    build = await asyncio.to_thread(imported, "sandyard.bootstrap.previews:build_previews")
    from sandyard.platform.wiring.part import PlatformPart

    platform = get_part(context.parts, PlatformPart)
    part: PreviewsPart = build(
        context.settings,
        platform,
        data_dir=context.data_dir,
        clock=context.clock,
        engine=context.engines.get("previews"),
    )
    return part


def _engine(settings: "Settings", data_dir: Path) -> "SqlEngine":
    from sandyard.kit.clock import SystemClock
    from sandyard.previews.stores.schema import MIGRATIONS
    from sandyard.previews.stores.tables import jobs
    from sandyard.wiring.engines import SqlEngine, e2b_key

    if settings.previews.preview_provider == "e2b":
        e2b_key(settings.e2b, needed_for="PREVIEW_PROVIDER=e2b")
    return SqlEngine(settings, data_dir, MIGRATIONS, jobs, SystemClock())


def _missing(settings: "Settings") -> Sequence[str]:
    from sandyard.runtime.local.server.requirements import missing_for_previews

    if settings.previews.preview_provider != "local":
        return ()
    return missing_for_previews(settings.sandboxes.sandbox_isolation)


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
    migrations=partial(imported, "sandyard.previews.stores.schema:MIGRATIONS"),
    verify=lazy("sandyard.bootstrap.previews:verify_previews"),
    log=lazy("sandyard.bootstrap.previews:open_previews_log"),
    missing=_missing,
)

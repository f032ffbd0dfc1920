"""The spec of Previews."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from sandyard.bootstrap.spec import (
    BuildContext,
    Counting,
    JobSpec,
    PartSpec,
    Verification,
    get_part,
)

if TYPE_CHECKING:
    from sandyard.bootstrap.previews import PreviewsPart
    from sandyard.kit.events import EventLog
    from sandyard.kit.migrations import Migrations
    from sandyard.settings import Settings


async def _build(context: BuildContext) -> "PreviewsPart":
    from sandyard.bootstrap.platform import PlatformPart
    from sandyard.bootstrap.previews import build_previews

    platform = get_part(context.parts, PlatformPart)
    return build_previews(
        context.settings, platform, data_dir=context.data_dir, clock=context.clock
    )


def _migrations() -> "Migrations":
    from sandyard.previews.stores.sql import MIGRATIONS

    return MIGRATIONS


async def _verify(settings: "Settings", data_dir: Path, counting: Counting) -> Verification:
    from sandyard.bootstrap.previews import verify_previews

    return await verify_previews(settings, data_dir, counting)


def _missing(settings: "Settings") -> Sequence[str]:
    from sandyard.runtime.local.machine import missing_for_previews

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
    "end previews of this node that no project has",
    absent="E2B ends previews by itself",
)
EVENTS = JobSpec("previews-events", "remove events whose retention is over")

PREVIEWS = PartSpec(
    "previews",
    _build,
    settings=("previews", "e2b"),
    routers=(
        "sandyard.previews.http.router",
        "sandyard.previews.http.web",
    ),
    needs=("platform",),
    jobs=(END_PREVIEWS, DELETED_PROJECTS, SWEEP, EVENTS),
    migrations=_migrations,
    verify=_verify,
    log=_log,
    missing=_missing,
)

"""Previews, wired to the Platform's projects and runtime."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from fastapi import APIRouter

from sandyard.bootstrap.engines import e2b_key, open_part_database
from sandyard.bootstrap.part import Gauges
from sandyard.bootstrap.platform import PREFIX, PlatformPart
from sandyard.bootstrap.preview_provider import LocalPreviewProvider
from sandyard.kit import ids
from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.jobs import Job, JobRunner
from sandyard.platform.access import OPENED_BY_ACCOUNTS
from sandyard.platform.runtime.model import Limits
from sandyard.platform.schema import MIGRATIONS
from sandyard.previews.http.router import create_previews_router
from sandyard.previews.http.web import create_web_router
from sandyard.previews.jobs import EndDeleted, SweepPreviews
from sandyard.previews.model import FileLimits
from sandyard.previews.providers.ports import PreviewProvider
from sandyard.previews.service import PreviewPolicy, Previews
from sandyard.previews.stores.old_columns import OldColumns
from sandyard.previews.stores.sql import SqlPreviewStore
from sandyard.settings import Settings

_MEMORY_BYTES = 256 * 2**20
_PROCESSES = 32


@dataclass(frozen=True, slots=True)
class PreviewsPart:
    """It shares the Platform's database and jobs, which the Platform opens and closes."""

    name: ClassVar[str] = "previews"
    platform: PlatformPart
    previews: Previews
    routers: Sequence[APIRouter]
    schedule: Sequence[Job[Any]] = ()

    @property
    def engine(self) -> str:
        return self.platform.engine

    @property
    def runner(self) -> JobRunner:
        return self.platform.runner

    async def prepare(self) -> None:
        await self.check()

    async def check(self) -> None:
        await self.platform.check()

    async def gauges(self) -> Gauges:
        return {}

    async def close(self) -> None:
        await self.previews.close()


def build_previews(
    settings: Settings,
    platform: PlatformPart,
    *,
    clock: Clock | None = None,
    provider: PreviewProvider | None = None,
) -> PreviewsPart:
    clock = clock or SystemClock()
    chosen = settings.previews
    store = SqlPreviewStore(platform.database, reads=chosen.preview_reads)
    provider = provider or open_provider(settings, platform)
    previews = Previews(
        store,
        provider,
        clock=clock,
        make_attempt_id=ids.holder_id,
        policy=PreviewPolicy(
            ttl=timedelta(minutes=chosen.preview_ttl_minutes),
            per_account=chosen.previews_per_account,
            files=FileLimits(chosen.preview_max_files, chosen.preview_max_bytes),
            attempt_for=timedelta(seconds=chosen.preview_attempt_sec),
        ),
    )
    api = create_previews_router(
        previews,
        platform.guard.account,
        opened_by=OPENED_BY_ACCOUNTS,
        clock=clock,
        prefix=PREFIX,
    )
    every = chosen.preview_sweep_interval_sec
    schedule: list[Job[Any]] = [
        Job("deleted-previews", every, EndDeleted(store, provider, clock=clock).run),
    ]
    if isinstance(provider, LocalPreviewProvider):
        sweep = SweepPreviews(provider, store, clock=clock)
        schedule.append(Job(f"previews {platform.wired.node}", every, sweep.run))
    return PreviewsPart(platform, previews, (api, create_web_router()), schedule)


def open_provider(settings: Settings, platform: PlatformPart) -> PreviewProvider:
    chosen = settings.previews
    if chosen.preview_provider == "e2b":
        from sandyard.previews.providers.e2b import E2bProvider

        e2b = settings.e2b
        return E2bProvider(
            e2b_key(e2b, needed_for="PREVIEW_PROVIDER=e2b"),
            api_url=e2b.e2b_api_url,
            sandbox_url=e2b.e2b_sandbox_url,
            template=e2b.e2b_template,
            port=e2b.e2b_port,
        )
    limits = Limits(
        cpu=1,
        memory_bytes=_MEMORY_BYTES,
        processes=_PROCESSES,
        storage_bytes=4 * chosen.preview_max_bytes + 64 * 2**20,
        max_running_sec=chosen.preview_ttl_minutes * 60,
    )
    return LocalPreviewProvider(platform.wired.local_runtime, limits)


def open_old_columns(settings: Settings, data_dir: Path) -> tuple[OldColumns, Any]:
    """The migration's view of the Platform's database, and the database to close."""
    database = open_part_database(settings, data_dir, MIGRATIONS.part)
    return OldColumns(database), database

"""Previews, wired to the Platform's projects and runtime."""

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from sandyard.bootstrap.addresses import access_tokens, sandbox_domain
from sandyard.bootstrap.publish_sandboxes import AccountSandboxes
from sandyard.gateway.access import PageAccess
from sandyard.gateway.model import PageScope, SandboxDomain
from sandyard.kit.changes.events import EventLog
from sandyard.kit.clock import Clock, SystemClock, utc_time
from sandyard.kit.concurrency.tasks import Background
from sandyard.kit.jobs import Job
from sandyard.kit.observability.metrics import Gauges
from sandyard.kit.public_addresses import networks_of
from sandyard.kit.sizes import GIGABYTE
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.events import SqlEventLog
from sandyard.platform.access.guard import ACCOUNT_SECURITY
from sandyard.platform.access.sql import SqlCredentialLookup
from sandyard.platform.http import PREFIX
from sandyard.platform.quotas.model import ResourceQuota
from sandyard.platform.sandboxes.errors import QuotaExceededError
from sandyard.platform.sandboxes.model import MIN_MEMORY_GB
from sandyard.platform.wiring.part import PlatformPart
from sandyard.platform.wiring.runtimes import open_e2b_control
from sandyard.previews.attempts import Attempts
from sandyard.previews.files import FileLimits
from sandyard.previews.gateway_targets import PreviewTargets
from sandyard.previews.http.router import PreviewChecks, create_previews_router
from sandyard.previews.http.web import create_web_router
from sandyard.previews.jobs import EndPreviews, SweepPreviews
from sandyard.previews.look.chromium import Chromium
from sandyard.previews.look.service import Looks
from sandyard.previews.ports import PreviewProvider
from sandyard.previews.project_files import FilePolicy, ProjectFiles
from sandyard.previews.providers.local import LocalPreviewProvider
from sandyard.previews.providers.remote import REPEATS, RemotePreviewProvider, translation
from sandyard.previews.publishing.attempts import PublishAttempts
from sandyard.previews.publishing.domains import DomainProofs
from sandyard.previews.publishing.service import Publishing
from sandyard.previews.publishing.site import PublishedSites
from sandyard.previews.service import PreviewPolicy, Previews
from sandyard.previews.status_checks import ANSWER_WITHIN_SEC
from sandyard.previews.stores import tables
from sandyard.previews.stores.old_columns import OldColumns
from sandyard.previews.stores.schema import MIGRATIONS
from sandyard.previews.stores.sql import SqlPreviewStore
from sandyard.previews.verification import verify
from sandyard.runtime.model import Limits
from sandyard.runtime.remote.http import HttpPool
from sandyard.settings import E2bSettings, PreviewSettings, Settings
from sandyard.settings.fields import words
from sandyard.wiring.addresses import PROGRAM_PORT, public_url
from sandyard.wiring.engines import SqlEngine, open_for_command, prune_job, verification_of
from sandyard.wiring.job_specs import PreviewsJobSpecs as Specs
from sandyard.wiring.part import Part
from sandyard.wiring.spec import Counting, Verification

_PROCESSES = 256
_REMOVAL_INTERVAL_SEC = 1800
"""Data of a deleted project is removed within the hour; running previews are checked far more
often."""


@dataclass(slots=True, kw_only=True)
class PreviewsPart(Part):
    name: ClassVar[str] = "previews"
    sql: SqlEngine
    database: Database
    previews: Previews
    files: ProjectFiles
    publishing: Publishing
    log: EventLog
    targets: PreviewTargets
    sites: PublishedSites
    """Both for the gateway."""
    count_running: Callable[[], Awaitable[int]]

    async def own_gauges(self) -> Gauges:
        about = "Previews that run or are being made"
        return {"sandyard_previews_active": (about, await self.count_running())}

    async def check(self) -> None:
        await self.sql.check()

    async def close_engine(self) -> None:
        await self.publishing.background.finish()
        await self.previews.close()
        await self.database.close()


def build_previews(
    settings: Settings,
    platform: PlatformPart,
    *,
    data_dir: Path,
    clock: Clock | None = None,
    provider: PreviewProvider | None = None,
    answer_within_sec: float = ANSWER_WITHIN_SEC,
) -> PreviewsPart:
    clock = clock or SystemClock()
    engine = SqlEngine(settings, data_dir, MIGRATIONS, tables.jobs, clock)
    database = engine.database
    store = SqlPreviewStore(database, reads=settings.previews.preview_reads)
    provider = provider or open_provider(settings, platform)
    previews = Previews(
        store,
        provider,
        platform.projects,
        platform.administration,
        clock=clock,
        policy=replace(_policy(settings.previews), answer_within_sec=answer_within_sec),
        require_storage=_storage_check(provider, platform),
    )
    files = ProjectFiles(
        store, platform.projects, clock=clock, policy=_file_policy(settings.previews)
    )
    if isinstance(provider, LocalPreviewProvider):
        platform.wired.storage.add(partial(_stored_bytes, previews, provider.limits))
    file_bytes = settings.previews.file_bytes_per_account
    platform.quotas.add(partial(_preview_quotas, previews, store, file_bytes))
    attempts = PublishAttempts(
        store,
        AccountSandboxes(platform, max(settings.previews.preview_memory_gb, MIN_MEMORY_GB)),
        clock,
        files.limits,
    )
    proofs, background = _domain_proofs(settings), Background()
    publishing = Publishing(
        store, platform.projects, files, clock, file_bytes, proofs, attempts, background
    )
    log = open_log(database)
    platform.events.add(log)
    platform.export.add(("project_files", partial(_files_of, store)))
    api = create_previews_router(
        previews,
        files,
        log,
        _checks(settings, platform, clock),
        Looks(
            previews,
            Chromium(settings.previews.chromium),
            provider.connect if isinstance(provider, LocalPreviewProvider) else None,
        ),
        publishing,
        partial(_published_url, sandbox_domain(settings)),
        security=ACCOUNT_SECURITY,
        clock=clock,
        prefix=PREFIX,
    )
    return PreviewsPart(
        engine=engine.engine,
        routers=(api, create_web_router()),
        runner=engine.runner,
        schedule=[
            *_schedule(settings.previews, platform, store, provider, clock),
            Specs.PUBLISHING.job(
                _REMOVAL_INTERVAL_SEC, publishing.end_abandoned, node=platform.wired.node
            ),
            prune_job(settings, Specs.EVENTS, log, clock),
        ],
        embedded=engine.embedded,
        sql=engine,
        database=database,
        previews=previews,
        files=files,
        publishing=publishing,
        log=log,
        sites=PublishedSites(store, platform.projects, platform.administration),
        targets=PreviewTargets(
            store,
            platform.projects,
            provider if isinstance(provider, LocalPreviewProvider) else None,
            clock,
            PROGRAM_PORT,
        ),
        count_running=lambda: store.count_running(at=utc_time(clock.now())),
    )


def _checks(settings: Settings, platform: PlatformPart, clock: Clock) -> PreviewChecks:
    account = platform.guard.runner
    accounts = SqlCredentialLookup(platform.database)
    pages = PageAccess(account, access_tokens(settings), accounts, clock=clock)
    return PreviewChecks(
        account,
        status=pages.check_for(PageScope.STATUS),
        sync=pages.check_for(PageScope.SYNC),
        streams=platform.guard.streams,
    )


def _storage_check(
    provider: PreviewProvider, platform: PlatformPart
) -> Callable[[str], Awaitable[None]] | None:
    """Previews elsewhere store nothing here."""
    if not isinstance(provider, LocalPreviewProvider):
        return None
    return partial(
        platform.wired.storage.require,
        size_bytes=provider.limits.storage_bytes,
        error=QuotaExceededError,
    )


async def _stored_bytes(previews: Previews, limits: Limits, account_id: str) -> int:
    """A running preview counts with all that it may store."""
    return (await previews.quota(account_id)).in_use * limits.storage_bytes


async def _preview_quotas(
    previews: Previews, store: SqlPreviewStore, file_bytes: int, account_id: str
) -> Sequence[ResourceQuota]:
    running = await previews.quota(account_id)
    return [
        ResourceQuota("previews", running.in_use, running.limit),
        ResourceQuota("file_bytes", await store.file_bytes(account_id), file_bytes),
    ]


def _domain_proofs(settings: Settings) -> DomainProofs:
    own = (urlsplit(public_url(settings)).hostname or "", sandbox_domain(settings).name)
    allowed = networks_of(words(settings.sandboxes.sandbox_egress_networks))
    return DomainProofs(settings.secret("gateway_secret"), own, allowed)


def _published_url(domain: SandboxDomain, project_id: str) -> str:
    return domain.url_of("pub" + project_id.removeprefix("prj"), PROGRAM_PORT)


def open_log(database: Database) -> SqlEventLog:
    return SqlEventLog(database, tables.events, part="previews", subjects=tables.SUBJECTS)


async def verify_previews(settings: Settings, data_dir: Path, counting: Counting) -> Verification:
    async with open_for_command(settings, data_dir, MIGRATIONS) as database:
        store = SqlPreviewStore(database, reads=settings.previews.preview_reads)
        with counting("verify previews", None) as progress:
            report = await verify(store, open_log(database), progress=progress)
    return verification_of("previews", report)


@asynccontextmanager
async def open_previews_log(settings: Settings, data_dir: Path) -> AsyncIterator[EventLog]:
    async with open_for_command(settings, data_dir, MIGRATIONS) as database:
        yield open_log(database)


def _policy(chosen: PreviewSettings) -> PreviewPolicy:
    return PreviewPolicy(
        ttl=timedelta(minutes=chosen.preview_ttl_minutes),
        per_account=chosen.previews_per_account,
        attempt_for=timedelta(seconds=chosen.preview_attempt_sec),
    )


def _file_policy(chosen: PreviewSettings) -> FilePolicy:
    limits = FileLimits(
        chosen.preview_max_files, chosen.preview_max_bytes, chosen.preview_keep_versions
    )
    return FilePolicy(limits, chosen.file_bytes_per_account)


def _schedule(
    chosen: PreviewSettings,
    platform: PlatformPart,
    store: SqlPreviewStore,
    provider: PreviewProvider,
    clock: Clock,
) -> Sequence[Job[Any]]:
    every = chosen.preview_sweep_interval_sec
    accounts = platform.administration
    attempts = Attempts(store, provider, accounts, clock, _policy(chosen).ttl)
    ending = EndPreviews(store, attempts, platform.projects, accounts, clock)
    removal = Specs.DELETED_PROJECTS.job(_REMOVAL_INTERVAL_SEC, ending.run_over_deleted)
    if not isinstance(provider, LocalPreviewProvider):
        return (Specs.END_PREVIEWS.job(every, ending.run_over_running), removal)
    node = platform.wired.node  # each node ends its own previews
    sweep = SweepPreviews(provider, store, clock)
    return (
        Specs.END_PREVIEWS.job(every, ending.run_over_running, node=node),
        removal,
        Specs.SWEEP.job(every, sweep.run, node=node),
    )


def open_provider(settings: Settings, platform: PlatformPart) -> PreviewProvider:
    chosen = settings.previews
    if chosen.preview_provider == "e2b":
        pool = platform.wired.e2b_pool
        return open_e2b_provider(settings.e2b, pool, install_sec=chosen.preview_install_sec)
    limits = Limits(
        cpu=1,
        memory_bytes=int(chosen.preview_memory_gb * GIGABYTE),
        processes=_PROCESSES,
        storage_bytes=int(chosen.preview_storage_gb * GIGABYTE) + 4 * chosen.preview_max_bytes,
        max_running_sec=chosen.preview_ttl_minutes * 60,
    )
    runtime, domain = platform.wired.local_runtime, sandbox_domain(settings)
    return LocalPreviewProvider(
        runtime,
        limits,
        node=platform.wired.node,
        url_of=lambda running: domain.url_of(running.run_id.id, running.port),
        network=chosen.preview_network,
        hosts=f".{domain.name}",
        install_sec=chosen.preview_install_sec,
    )


def open_e2b_provider(
    e2b: E2bSettings, pool: HttpPool, *, install_sec: float = 600
) -> RemotePreviewProvider:
    control = open_e2b_control(
        e2b, pool, translation, needed_for="PREVIEW_PROVIDER=e2b", repeats=REPEATS
    )
    return RemotePreviewProvider(
        control,
        template=e2b.e2b_template,
        port=e2b.e2b_port,
        scheme="http" if (e2b.e2b_sandbox_url or "").startswith("http://") else "https",
        files_sec=control.timeouts.files_sec,
        hosts=f".{e2b.e2b_domain}",
        install_sec=install_sec,
    )


@asynccontextmanager
async def open_old_columns(settings: Settings, data_dir: Path) -> AsyncIterator[OldColumns]:
    async with open_for_command(settings, data_dir, MIGRATIONS) as database:
        yield OldColumns(database, clock=SystemClock())


async def _files_of(
    store: SqlPreviewStore, account_id: str
) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
    """The files of each of the account's projects, for its export."""
    for preview in await store.with_files(account_id):
        for each in await store.files(preview.project_id):
            record = {"project_id": preview.project_id, "path": each.path, "version": each.version}
            yield [record | {"content_base64": base64.b64encode(each.content).decode()}]

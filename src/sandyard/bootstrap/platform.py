"""The Platform, wired."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from fastapi import APIRouter

from sandyard.bootstrap.engines import (
    embedded_database,
    job_runner,
    open_part_database,
    prune_job,
    secret,
    verification_of,
)
from sandyard.bootstrap.part import WiredPart
from sandyard.bootstrap.sandboxes import SandboxesWired, build_sandboxes
from sandyard.bootstrap.spec import Counting, Verification
from sandyard.bootstrap.specs import platform as specs
from sandyard.kit import ids
from sandyard.kit.background import Background
from sandyard.kit.client_address import ClientAddress
from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.events import EventLog
from sandyard.kit.events_merged import MergedEvents
from sandyard.kit.jobs import Job, JobRunner
from sandyard.kit.jobs_sql import SqlJobLeases
from sandyard.kit.rates import Rate
from sandyard.kit.sql import Database
from sandyard.kit.sql_transitions import SqlTransitions
from sandyard.platform import tables
from sandyard.platform.access import AccessGuard
from sandyard.platform.access_sql import SqlCredentialLookup
from sandyard.platform.accounts.admin import Administration
from sandyard.platform.accounts.admin_http import create_users_router
from sandyard.platform.accounts.email_templates import EmailTemplates
from sandyard.platform.accounts.http import create_auth_router, create_me_router
from sandyard.platform.accounts.jobs import PruneLoginAttempts, RemoveExpiredSignups
from sandyard.platform.accounts.login_limiter import LoginLimiter
from sandyard.platform.accounts.login_model import LoginLimits
from sandyard.platform.accounts.passwords import Argon2Passwords
from sandyard.platform.accounts.rate_limiter import LimitsRateLimiter
from sandyard.platform.accounts.service import Accounts, Makers
from sandyard.platform.accounts.sql import SqlAccountStore
from sandyard.platform.accounts.sql_logins import SqlLoginAttempts
from sandyard.platform.accounts.sql_signups import SqlSignupStore
from sandyard.platform.api_keys.http import create_keys_router
from sandyard.platform.api_keys.service import AccountKeys
from sandyard.platform.api_keys.sql import SqlKeyStore
from sandyard.platform.budgets import Noun
from sandyard.platform.budgets_sql import BudgetUse
from sandyard.platform.entities import platform_events, platform_transitions
from sandyard.platform.events_http import create_all_events_router, create_events_router
from sandyard.platform.logins import Logins
from sandyard.platform.mail import FileOutbox, Mailer, SmtpMailer
from sandyard.platform.notifications.http import (
    create_broadcast_router,
    create_notifications_router,
)
from sandyard.platform.notifications.service import Notifications
from sandyard.platform.notifications.sql import SqlNotificationStore
from sandyard.platform.projects.http import create_projects_router
from sandyard.platform.projects.service import Projects
from sandyard.platform.projects.sql import SqlProjectStore
from sandyard.platform.quotas.http import create_quotas_router
from sandyard.platform.quotas.service import Quotas
from sandyard.platform.request_rate import RequestRate
from sandyard.platform.schema import MIGRATIONS
from sandyard.platform.templates.http import create_templates_router
from sandyard.platform.templates.service import Templates
from sandyard.platform.templates.sql import SqlTemplateStore
from sandyard.platform.verification import verify_platform
from sandyard.settings import PlatformSettings, Settings, tokens

PREFIX = "/api/v1"
OUTBOX = "outbox"
_SIGNUPS_INTERVAL_SEC = 3600
_LOGINS_INTERVAL_SEC = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformPart(WiredPart):
    name: ClassVar[str] = "platform"
    runner: JobRunner
    database: Database
    guard: AccessGuard
    logins: Logins
    accounts: Accounts
    administration: Administration
    projects: Projects
    templates: Templates
    events: MergedEvents
    """What is listed as an account's; a part that is built on this one adds its own."""
    passwords: Argon2Passwords
    background: Background
    wired: SandboxesWired
    quotas: Quotas

    async def prepare(self) -> None:
        await WiredPart.prepare(self)
        await self.templates.add_official()

    async def start(self) -> None:
        if self.embedded is not None:
            await self.wired.recorder.cap_elsewhere(self.wired.node)

    async def check(self) -> None:
        await self.database.check()
        await MIGRATIONS.require_head(self.database)

    async def close_engine(self) -> None:
        await self.wired.sandboxes.close()
        await self.background.finish()
        self.passwords.close()
        await self.database.close()


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all nouns of the Platform are built from."""

    settings: Settings
    database: Database
    transitions: SqlTransitions
    clock: Clock
    guard: AccessGuard
    logins: Logins
    runner: JobRunner


@dataclass(frozen=True, slots=True)
class _AccountsWired:
    accounts: Accounts
    administration: Administration
    passwords: Argon2Passwords
    background: Background
    jobs: Sequence[Job[Any]]


def build_platform(
    settings: Settings,
    *,
    data_dir: Path,
    clock: Clock | None = None,
    passwords: Argon2Passwords | None = None,
    make: Makers | None = None,
) -> PlatformPart:
    shared = _shared(settings, data_dir, clock or SystemClock())
    mailer = _mailer(settings, data_dir, shared.clock)
    people = _accounts(shared, mailer, passwords or Argon2Passwords(), make)
    projects = Projects(
        SqlProjectStore(shared.database, shared.transitions),
        clock=shared.clock,
        per_account=settings.platform.projects_per_account,
    )
    templates = Templates(
        SqlTemplateStore(shared.database, shared.transitions),
        clock=shared.clock,
        per_account=settings.platform.templates_per_account,
    )
    wired = _sandboxes(shared, data_dir)
    database = shared.database
    quotas = Quotas(wired.quotas.of_account, _budget_use(database, settings).of_account)
    log = platform_events(database)
    events = MergedEvents(log)
    return PlatformPart(
        engine=database.name,
        routers=(
            *_account_routers(shared, people),
            create_quotas_router(quotas, shared.guard, prefix=PREFIX),
            *_noun_routers(shared, projects, templates),
            create_events_router(log, events, shared.guard, prefix=PREFIX),
            create_all_events_router(events, shared.guard, prefix=PREFIX),
            *wired.routers,
        ),
        runner=shared.runner,
        schedule=(
            *people.jobs,
            prune_job(settings, specs.EVENTS, log, shared.clock),
            *wired.schedule,
        ),
        embedded=embedded_database(settings, database, MIGRATIONS, tables.jobs),
        database=database,
        guard=shared.guard,
        logins=shared.logins,
        accounts=people.accounts,
        administration=people.administration,
        projects=projects,
        templates=templates,
        events=events,
        passwords=people.passwords,
        background=people.background,
        wired=wired,
        quotas=quotas,
    )


def _budget_use(database: Database, settings: Settings) -> BudgetUse:
    limits = {
        Noun.PROJECTS: settings.platform.projects_per_account,
        Noun.TEMPLATES: settings.platform.templates_per_account,
        Noun.SANDBOXES: settings.sandboxes.sandboxes_per_account,
    }
    return BudgetUse(database, limits)


def _shared(settings: Settings, data_dir: Path, clock: Clock) -> _Shared:
    chosen = settings.platform
    database = open_part_database(settings, data_dir, MIGRATIONS.part)
    logins = Logins(tokens(chosen.jwt_secret), lifetime=timedelta(hours=chosen.login_hours))
    requests = RequestRate(chosen.requests_per_account, settings.broker.rate_limit_storage_url)
    guard = AccessGuard(SqlCredentialLookup(database), logins, requests, clock=clock)
    runner = job_runner(settings, SqlJobLeases(database, tables.jobs), clock)
    transitions = platform_transitions(database, clock)
    return _Shared(settings, database, transitions, clock, guard, logins, runner)


def _accounts(
    shared: _Shared, mailer: Mailer, passwords: Argon2Passwords, make: Makers | None
) -> _AccountsWired:
    database, clock = shared.database, shared.clock
    store = SqlAccountStore(database, shared.transitions)
    signups = SqlSignupStore(database, shared.transitions)
    attempts = SqlLoginAttempts(database)
    public_url = (shared.settings.platform.public_url or "").rstrip("/")
    background = Background()
    accounts = Accounts(
        store,
        signups,
        passwords=passwords,
        logins=shared.logins,
        rate_limiter=_rate_limiter(shared.settings),
        login_limiter=LoginLimiter(attempts, _login_limits(shared.settings.platform), clock=clock),
        mailer=mailer,
        email_templates=EmailTemplates(public_url, PREFIX),
        background=background,
        clock=clock,
        make=make,
    )
    administration = Administration(store, passwords=passwords, clock=clock)
    jobs = (
        specs.SIGNUPS.job(_SIGNUPS_INTERVAL_SEC, RemoveExpiredSignups(signups, clock=clock).run),
        specs.LOGINS.job(_LOGINS_INTERVAL_SEC, PruneLoginAttempts(attempts, clock=clock).run),
    )
    return _AccountsWired(accounts, administration, passwords, background, jobs)


def _login_limits(chosen: PlatformSettings) -> LoginLimits:
    return LoginLimits(
        per_pair=Rate.parse(chosen.attempts_per_account),
        per_network=Rate.parse(chosen.attempts_per_address),
        per_login=Rate.parse(chosen.failed_logins_per_account),
    )


def _rate_limiter(settings: Settings) -> LimitsRateLimiter:
    return LimitsRateLimiter(
        per_account=settings.platform.attempts_per_account,
        per_address=settings.platform.attempts_per_address,
        storage_url=settings.broker.rate_limit_storage_url,
    )


def _account_routers(shared: _Shared, people: _AccountsWired) -> Sequence[APIRouter]:
    guard = shared.guard
    client_address = ClientAddress(shared.settings.server.proxy_networks)
    keys = AccountKeys(SqlKeyStore(shared.database, shared.transitions), clock=shared.clock)
    return (
        create_me_router(people.accounts, guard, prefix=PREFIX),
        create_auth_router(people.accounts, guard, client_address.of, prefix=PREFIX),
        create_keys_router(keys, guard, prefix=PREFIX),
        create_users_router(people.administration, guard, prefix=PREFIX),
    )


def _noun_routers(shared: _Shared, projects: Projects, templates: Templates) -> Sequence[APIRouter]:
    guard = shared.guard
    store = SqlNotificationStore(shared.database, shared.transitions)
    notifications = Notifications(store, clock=shared.clock)
    return (
        create_projects_router(projects, guard, prefix=PREFIX),
        create_templates_router(templates, guard, prefix=PREFIX),
        create_notifications_router(notifications, guard, prefix=PREFIX),
        create_broadcast_router(notifications, guard, prefix=PREFIX),
    )


def _sandboxes(shared: _Shared, data_dir: Path) -> SandboxesWired:
    return build_sandboxes(
        shared.settings.sandboxes,
        shared.database,
        shared.guard,
        shared.runner,
        e2b=shared.settings.e2b,
        clock=shared.clock,
        data_dir=data_dir,
        prefix=PREFIX,
    )


def _mailer(settings: Settings, data_dir: Path, clock: Clock) -> Mailer:
    sender = settings.platform.mail_from
    url = secret(settings.platform.smtp_url)
    if url is not None:
        return SmtpMailer(url, sender=sender, clock=clock)
    return FileOutbox(data_dir / OUTBOX, sender=sender, clock=clock, make_id=ids.holder_id)


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

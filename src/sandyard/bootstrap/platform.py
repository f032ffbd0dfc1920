"""The Platform, wired."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from fastapi import APIRouter

from sandyard.bootstrap.engines import is_embedded, open_part_database, secret
from sandyard.bootstrap.part import Gauges
from sandyard.bootstrap.sandboxes import SandboxesWired, build_sandboxes
from sandyard.kit import ids
from sandyard.kit.background import Background
from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.jobs import Job, JobRunner
from sandyard.kit.jobs_sql import SqlJobLeases
from sandyard.kit.sql import Database
from sandyard.platform import tables
from sandyard.platform.access import AccessGuard
from sandyard.platform.access_sql import SqlStandings
from sandyard.platform.accounts.admin import Administration
from sandyard.platform.accounts.admin_http import create_users_router
from sandyard.platform.accounts.attempts import CountedAttempts
from sandyard.platform.accounts.http import create_auth_router, create_me_router
from sandyard.platform.accounts.jobs import RemoveExpiredSignups
from sandyard.platform.accounts.letters import Letters
from sandyard.platform.accounts.passwords import Argon2Passwords
from sandyard.platform.accounts.service import Accounts, Makers
from sandyard.platform.accounts.sql import SqlAccountStore
from sandyard.platform.accounts.sql_signups import SqlSignupStore
from sandyard.platform.api_keys.http import create_keys_router
from sandyard.platform.api_keys.service import AccountKeys
from sandyard.platform.api_keys.sql import SqlKeyStore
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
from sandyard.platform.schema import MIGRATIONS
from sandyard.platform.templates.http import create_templates_router
from sandyard.platform.templates.service import Templates
from sandyard.platform.templates.sql import SqlTemplateStore
from sandyard.settings import Settings, tokens

PREFIX = "/api/v1"
OUTBOX = "outbox"
_SIGNUPS_INTERVAL_SEC = 3600


@dataclass(frozen=True, slots=True)
class PlatformPart:
    name: ClassVar[str] = "platform"
    database: Database
    guard: AccessGuard
    logins: Logins
    accounts: Accounts
    administration: Administration
    templates: Templates
    passwords: Argon2Passwords
    background: Background
    routers: Sequence[APIRouter]
    runner: JobRunner
    schedule: Sequence[Job[Any]]
    wired: SandboxesWired
    is_embedded: bool
    """Whether this process has the engine to itself."""

    @property
    def engine(self) -> str:
        return self.database.name

    async def prepare(self) -> None:
        if self.is_embedded:
            await self.upgrade()
            await SqlJobLeases(self.database, tables.jobs).forget_holders()
        await self.check()
        await self.templates.add_official()

    async def upgrade(self) -> None:
        """Bring the engine to the newest schema."""
        if await MIGRATIONS.current(self.database) != MIGRATIONS.head:
            await MIGRATIONS.upgrade(self.database)

    async def check(self) -> None:
        await self.database.check()
        await MIGRATIONS.require_head(self.database)

    async def gauges(self) -> Gauges:
        return {}

    async def close(self) -> None:
        await self.runner.stop()
        await self.wired.sandboxes.close()
        await self.background.finish()
        self.passwords.close()
        await self.database.close()


def build_platform(
    settings: Settings,
    *,
    data_dir: Path,
    clock: Clock | None = None,
    passwords: Argon2Passwords | None = None,
    make: Makers | None = None,
) -> PlatformPart:
    clock = clock or SystemClock()
    platform = settings.platform
    passwords = passwords or Argon2Passwords()
    database = open_part_database(settings, data_dir, MIGRATIONS.part)
    background = Background()
    logins = Logins(tokens(platform.jwt_secret), lifetime=timedelta(hours=platform.login_hours))
    guard = AccessGuard(SqlStandings(database), logins, clock=clock)
    store, signups = SqlAccountStore(database), SqlSignupStore(database)
    accounts = Accounts(
        store,
        signups,
        passwords=passwords,
        logins=logins,
        attempts=CountedAttempts(
            per_account=platform.attempts_per_account,
            per_address=platform.attempts_per_address,
            storage_url=settings.broker.rate_limit_storage_url,
        ),
        mailer=_mailer(settings, data_dir, clock),
        letters=Letters(f"{(platform.public_url or '').rstrip('/')}{PREFIX}"),
        background=background,
        clock=clock,
        make=make,
    )
    administration = Administration(store, passwords=passwords, clock=clock)
    keys = AccountKeys(SqlKeyStore(database), clock=clock)
    projects = Projects(SqlProjectStore(database), clock=clock)
    templates = Templates(SqlTemplateStore(database), clock=clock)
    notifications = Notifications(SqlNotificationStore(database), clock=clock)
    removal = RemoveExpiredSignups(signups, clock=clock)
    runner = JobRunner(
        SqlJobLeases(database, tables.jobs),
        clock=clock,
        holder=ids.holder_id(),
        lease_sec=settings.server.job_lease_sec,
    )
    wired = build_sandboxes(
        settings.sandboxes,
        database,
        guard,
        runner,
        e2b=settings.e2b,
        clock=clock,
        data_dir=data_dir,
        prefix=PREFIX,
    )
    return PlatformPart(
        database=database,
        guard=guard,
        logins=logins,
        accounts=accounts,
        administration=administration,
        templates=templates,
        passwords=passwords,
        background=background,
        routers=(
            create_me_router(accounts, guard, prefix=PREFIX),
            create_auth_router(
                accounts, guard, prefix=PREFIX, address_header=platform.client_address_header
            ),
            create_keys_router(keys, guard, prefix=PREFIX),
            create_projects_router(projects, guard, prefix=PREFIX),
            create_templates_router(templates, guard, prefix=PREFIX),
            create_notifications_router(notifications, guard, prefix=PREFIX),
            create_users_router(administration, guard, prefix=PREFIX),
            create_broadcast_router(notifications, guard, prefix=PREFIX),
            *wired.routers,
        ),
        runner=runner,
        schedule=(Job("signups", _SIGNUPS_INTERVAL_SEC, removal.run), *wired.schedule),
        wired=wired,
        is_embedded=is_embedded(settings, MIGRATIONS.part),
    )


def _mailer(settings: Settings, data_dir: Path, clock: Clock) -> Mailer:
    sender = settings.platform.mail_from
    url = secret(settings.platform.smtp_url)
    if url is not None:
        return SmtpMailer(url, sender=sender, clock=clock)
    return FileOutbox(data_dir / OUTBOX, sender=sender, clock=clock, make_id=ids.holder_id)

"""The Platform, wired."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fastapi import APIRouter

from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.concurrency.tasks import Background
from sandyard.kit.http.client_address import ClientAddress
from sandyard.kit.observability.metrics import Gauges
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.events import MergedEvents
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.login_tokens import Logins
from sandyard.platform.account_data.export import AccountExport
from sandyard.platform.account_data.http import create_account_data_router
from sandyard.platform.account_data.jobs import EraseDeletedAccounts
from sandyard.platform.account_data.sql import SqlAccountDataStore
from sandyard.platform.accounts.admin.http import create_invitations_router, create_users_router
from sandyard.platform.accounts.admin.service import Administration
from sandyard.platform.accounts.context import IdMakers
from sandyard.platform.accounts.http import create_auth_router, create_me_router
from sandyard.platform.accounts.identity.http import create_oidc_router
from sandyard.platform.accounts.passwords import Argon2Passwords
from sandyard.platform.accounts.service import Accounts
from sandyard.platform.api_keys.http import create_keys_router
from sandyard.platform.api_keys.service import AccountKeys
from sandyard.platform.api_keys.sql import SqlKeyStore
from sandyard.platform.events.entities import platform_events
from sandyard.platform.events.http import create_all_events_router, create_events_router
from sandyard.platform.images.http import create_images_router
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
from sandyard.platform.quotas.model import ResourceKind
from sandyard.platform.quotas.service import Quotas
from sandyard.platform.quotas.sql import CountQuotas
from sandyard.platform.schema.migrations import MIGRATIONS
from sandyard.platform.schema.tables import jobs
from sandyard.platform.sessions.listening_ports.http import UrlOf
from sandyard.platform.templates.http import create_templates_router
from sandyard.platform.templates.service import Templates
from sandyard.platform.templates.sql import SqlTemplateStore
from sandyard.platform.variables.certificates import SandboxAuthorities
from sandyard.platform.variables.cipher import Cipher
from sandyard.platform.variables.http import create_project_env_router
from sandyard.platform.variables.service import ParentProjects, Variables
from sandyard.platform.variables.sql import SqlVariableStore
from sandyard.platform.wiring.accounts import AccountsWired
from sandyard.platform.wiring.images import NodeRootFileSystems
from sandyard.platform.wiring.runtimes import named
from sandyard.platform.wiring.sandboxes import SandboxesWired
from sandyard.platform.wiring.shared import Shared, shared_by_nouns
from sandyard.platform.wiring.ssh import SshWired, build_ssh
from sandyard.runtime.ports import Runtime
from sandyard.settings import Settings
from sandyard.wiring.engines import SqlEngine, prune_job
from sandyard.wiring.job_specs import PlatformJobSpecs as Specs
from sandyard.wiring.part import Part

_ERASURE_INTERVAL_SEC = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformPart(Part):
    name: ClassVar[str] = "platform"
    sql: SqlEngine
    database: Database
    guard: AccessGuard
    logins: Logins
    accounts: Accounts
    administration: Administration
    projects: Projects
    templates: Templates
    events: MergedEvents
    """The events listed for an account; a part that is built on this one adds its own."""
    passwords: Argon2Passwords
    background: Background
    wired: SandboxesWired
    quotas: Quotas
    export: AccountExport
    variables: Variables
    ssh: SshWired
    clock: Clock

    async def prepare(self) -> None:
        await Part.prepare(self)
        await self.templates.add_official()

    async def start(self) -> None:
        if self.embedded is not None:
            await self.wired.recorder.cap_elsewhere(self.wired.node)
        if self.ssh.server is not None:
            await self.ssh.server.open()

    async def own_gauges(self) -> Gauges:
        return await self.wired.gauges()

    async def check(self) -> None:
        await self.sql.check()

    async def close_engine(self) -> None:
        if self.ssh.server is not None:
            await self.ssh.server.close()
        await self.wired.activity.close()
        await self.wired.images.close()
        await self.wired.sandboxes.close()
        await self.wired.e2b_pool.close()
        for close in self.wired.closers:
            await close()
        await self.background.finish()
        self.passwords.close()
        await self.database.close()


def build_platform(
    settings: Settings,
    *,
    data_dir: Path,
    url_of: UrlOf,
    clock: Clock | None = None,
    passwords: Argon2Passwords | None = None,
    make: IdMakers | None = None,
    runtime: Runtime | None = None,
) -> PlatformPart:
    """`url_of` gives the public URL of a sandbox's port; `runtime` runs the sandboxes instead of
    the configured one."""
    clock = clock or SystemClock()
    engine = SqlEngine(settings, data_dir, MIGRATIONS, jobs, clock)
    shared = shared_by_nouns(settings, data_dir, engine, clock, url_of)
    passwords = passwords or Argon2Passwords()
    people = AccountsWired(shared, passwords=passwords, make=make or IdMakers())
    projects = Projects(
        SqlProjectStore(shared.database, shared.transitions),
        clock=shared.clock,
        per_account=settings.platform.projects_per_account,
    )
    variables = _variables(shared)
    wired = SandboxesWired(shared, variables, runtime)
    ssh = build_ssh(shared, wired)
    environments = NodeRootFileSystems(
        shared, wired.images, named(settings.kubernetes.kubernetes_images)
    )
    templates = Templates(
        SqlTemplateStore(shared.database, shared.transitions),
        environments,
        wired.runtime.check,
        clock=shared.clock,
        per_account=settings.platform.templates_per_account,
    )
    database = shared.database
    data = SqlAccountDataStore(database, shared.transitions, clock=shared.clock)
    erasure = EraseDeletedAccounts(data, wired.sandboxes, clock=shared.clock)
    export = AccountExport(data)
    quotas = Quotas(wired.quotas.of_account, _count_quotas(database, settings).of_account)
    log = platform_events(database)
    events = MergedEvents(log)
    return PlatformPart(
        engine=engine.engine,
        routers=(
            *_account_routers(shared, people),
            create_account_data_router(
                export,
                people.accounts,
                shared.guard,
                ClientAddress(settings.server.proxy_networks).of,
            ),
            create_quotas_router(quotas, shared.guard),
            *_noun_routers(shared, projects, templates),
            create_project_env_router(variables, ParentProjects(projects), shared.guard),
            create_images_router(wired.images, variables, ParentProjects(projects), shared.guard),
            create_events_router(log, events, shared.guard),
            create_all_events_router(events, shared.guard),
            ssh.router,
            *wired.routers,
        ),
        runner=shared.runner,
        schedule=(
            *people.jobs,
            Specs.DELETED_ACCOUNTS.job(_ERASURE_INTERVAL_SEC, erasure.run),
            prune_job(settings, Specs.EVENTS, log, shared.clock),
            *wired.schedule,
        ),
        embedded=engine.embedded,
        sql=engine,
        database=database,
        guard=shared.guard,
        logins=shared.logins,
        accounts=people.accounts,
        administration=people.administration,
        projects=projects,
        templates=templates,
        events=events,
        passwords=passwords,
        background=people.background,
        wired=wired,
        quotas=quotas,
        export=export,
        variables=variables,
        ssh=ssh,
        clock=shared.clock,
    )


def _count_quotas(database: Database, settings: Settings) -> CountQuotas:
    limits = {
        ResourceKind.IMAGES: settings.sandboxes.images_per_account,
        ResourceKind.PROJECTS: settings.platform.projects_per_account,
        ResourceKind.TEMPLATES: settings.platform.templates_per_account,
        ResourceKind.VARIABLES: settings.platform.variables_per_account,
        ResourceKind.SANDBOXES: settings.sandboxes.sandboxes_per_account,
    }
    return CountQuotas(database, limits)


def _account_routers(shared: Shared, people: AccountsWired) -> Sequence[APIRouter]:
    guard = shared.guard
    client_address = ClientAddress(shared.settings.server.proxy_networks)
    keys = AccountKeys(SqlKeyStore(shared.database, shared.transitions), clock=shared.clock)
    return (
        create_me_router(people.accounts, guard),
        create_auth_router(people.accounts, people.signups, guard, client_address.of),
        create_oidc_router(people.identity_logins, client_address.of),
        create_keys_router(keys, guard),
        create_users_router(people.administration, guard),
        create_invitations_router(people.signups, guard),
    )


def _noun_routers(shared: Shared, projects: Projects, templates: Templates) -> Sequence[APIRouter]:
    guard = shared.guard
    store = SqlNotificationStore(shared.database, shared.transitions)
    notifications = Notifications(store, clock=shared.clock)
    return (
        create_projects_router(projects, guard),
        create_templates_router(templates, guard),
        create_notifications_router(notifications, guard),
        create_broadcast_router(notifications, guard),
    )


def _variables(shared: Shared) -> Variables:
    chosen = shared.settings.platform
    return Variables(
        SqlVariableStore(shared.database, shared.transitions),
        Cipher(shared.settings.secret("secrets_key")),
        clock=shared.clock,
        per_account=chosen.variables_per_account,
        authorities=SandboxAuthorities(shared.settings.secret("secrets_key")),
    )

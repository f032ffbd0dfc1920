"""The Platform, wired."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from fastapi import APIRouter

from sandyard.kit.changes.events import EventLog
from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.http.client_address import ClientAddress
from sandyard.kit.observability.metrics import Gauges
from sandyard.kit.sql.events import MergedEvents
from sandyard.platform.account_data.export import AccountExport
from sandyard.platform.account_data.http import create_account_data_router
from sandyard.platform.account_data.jobs import EraseDeletedAccounts
from sandyard.platform.account_data.sql import SqlAccountDataStore
from sandyard.platform.accounts.admin.http import create_invitations_router, create_users_router
from sandyard.platform.accounts.context import IdMakers
from sandyard.platform.accounts.http import create_auth_router, create_me_router
from sandyard.platform.accounts.identity.http import create_oidc_router
from sandyard.platform.accounts.passwords import Argon2Passwords
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
from sandyard.platform.quotas.sql import count_quotas
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
from sandyard.platform.wiring.shared import Shared
from sandyard.platform.wiring.ssh import build_ssh
from sandyard.runtime.ports import Runtime
from sandyard.settings import Settings
from sandyard.wiring.engines import SqlEngine, prune_job
from sandyard.wiring.job_specs import PlatformJobSpecs as Specs
from sandyard.wiring.part import Part

_ERASURE_INTERVAL_SEC = 60


class PlatformPart(Part):
    """`url_of` gives the public URL of a sandbox's port; `runtime` runs the sandboxes instead of
    the configured one."""

    name: ClassVar[str] = "platform"
    events: MergedEvents
    """The events listed for an account; a part that is built on this one adds its own."""

    def __init__(
        self,
        settings: Settings,
        *,
        data_dir: Path,
        url_of: UrlOf,
        clock: Clock | None = None,
        passwords: Argon2Passwords | None = None,
        make: IdMakers | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.clock = clock = clock or SystemClock()
        self.sql = SqlEngine(settings, data_dir, MIGRATIONS, jobs, clock)
        self.engine, self.embedded = self.sql.engine, self.sql.embedded
        shared = Shared(settings, data_dir, self.sql, clock, url_of)
        self.database, self.runner = shared.database, shared.runner
        self.guard, self.logins = shared.guard, shared.logins
        self.passwords = passwords or Argon2Passwords()
        people = AccountsWired(shared, passwords=self.passwords, make=make or IdMakers())
        self.accounts, self.administration = people.accounts, people.administration
        self.background = people.background
        self.projects = Projects(
            SqlProjectStore(shared.database, shared.transitions),
            clock=clock,
            per_account=settings.platform.projects_per_account,
        )
        self.variables = Variables(
            SqlVariableStore(shared.database, shared.transitions),
            Cipher(settings.secret("secrets_key")),
            clock=clock,
            per_account=settings.platform.variables_per_account,
            authorities=SandboxAuthorities(settings.secret("secrets_key")),
        )
        self.wired = SandboxesWired(shared, self.variables, runtime)
        self.ssh = build_ssh(shared, self.wired)
        self.templates = Templates(
            SqlTemplateStore(shared.database, shared.transitions),
            NodeRootFileSystems(
                shared, self.wired.images, named(settings.kubernetes.kubernetes_images)
            ),
            self.wired.runtime.check,
            clock=clock,
            per_account=settings.platform.templates_per_account,
        )
        data = SqlAccountDataStore(self.database, shared.transitions, clock=clock)
        erasure = EraseDeletedAccounts(data, self.wired.sandboxes, clock=clock)
        self.export = AccountExport(data)
        counted = partial(count_quotas, self.database, _limits(settings))
        self.quotas = Quotas(self.wired.quotas, counted)
        log = platform_events(self.database)
        self.events = MergedEvents(log)
        self.schedule = (
            *people.jobs,
            Specs.DELETED_ACCOUNTS.job(_ERASURE_INTERVAL_SEC, erasure.run),
            prune_job(settings, Specs.EVENTS, log, clock),
            *self.wired.schedule,
        )
        self.routers = (*self._routers(shared, people, log), self.ssh.router, *self.wired.routers)

    def _routers(self, shared: Shared, people: AccountsWired, log: EventLog) -> Sequence[APIRouter]:
        guard, projects = self.guard, ParentProjects(self.projects)
        address_of = ClientAddress(shared.settings.server.proxy_networks).of
        keys = AccountKeys(SqlKeyStore(shared.database, shared.transitions), clock=self.clock)
        notices = SqlNotificationStore(shared.database, shared.transitions)
        notifications = Notifications(notices, clock=self.clock)
        return (
            create_me_router(self.accounts, guard),
            create_auth_router(self.accounts, people.signups, guard, address_of),
            create_oidc_router(people.identity_logins, address_of),
            create_keys_router(keys, guard),
            create_users_router(self.administration, guard),
            create_invitations_router(people.signups, guard),
            create_account_data_router(self.export, self.accounts, guard, address_of),
            create_quotas_router(self.quotas, guard),
            create_projects_router(self.projects, guard),
            create_templates_router(self.templates, guard),
            create_notifications_router(notifications, guard),
            create_broadcast_router(notifications, guard),
            create_project_env_router(self.variables, projects, guard),
            create_images_router(self.wired.images, self.variables, projects, guard),
            create_events_router(log, self.events, guard),
            create_all_events_router(self.events, guard),
        )

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


def _limits(settings: Settings) -> dict[ResourceKind, int]:
    return {
        ResourceKind.IMAGES: settings.sandboxes.images_per_account,
        ResourceKind.PROJECTS: settings.platform.projects_per_account,
        ResourceKind.TEMPLATES: settings.platform.templates_per_account,
        ResourceKind.VARIABLES: settings.platform.variables_per_account,
        ResourceKind.VOLUMES: settings.sandboxes.volumes_per_account,
        ResourceKind.SANDBOXES: settings.sandboxes.sandboxes_per_account,
    }

"""Use cases of E2B's API for sandboxes."""

import asyncio
import hashlib
import secrets
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from sandyard.e2b_api.errors import AlreadyPausedError, SandboxNotFoundError
from sandyard.e2b_api.model import (
    SandboxView,
    clamped_timeout,
    is_gone,
    is_running,
    sandbox_id_of,
    state_of,
)
from sandyard.e2b_api.paging import matching
from sandyard.e2b_api.sandboxes.schemas import NewSandboxBody
from sandyard.e2b_api.templates.finder import TemplateFinder, archive_of
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.concurrency.keyed_locks import KeyedLocks
from sandyard.kit.paging import Page
from sandyard.platform.access.principal import Principal
from sandyard.platform.listings.model import Listing
from sandyard.platform.sandboxes.errors import SandboxNameTakenError, SandboxUnknownError
from sandyard.platform.sandboxes.model import Changes, NewSandbox, Sandbox, SandboxFilter, Status
from sandyard.platform.sandboxes.network.traffic_rules import TrafficRules
from sandyard.platform.sandboxes.runs.deadlines import Deadlines
from sandyard.platform.sandboxes.service import Sandboxes
from sandyard.platform.templates.errors import TemplateNotFoundError
from sandyard.platform.templates.model import Template
from sandyard.platform.variables.service import Variables
from sandyard.runtime.errors import NotRunningError
from sandyard.runtime.network_model import Network

BUILDER = "e2b-build-"
"""The name prefix of sandboxes in which templates are built."""
_CPU = 1.0
_MEMORY_GB = 1.0


class Launcher(Protocol):
    async def launch(self, sandbox: Sandbox, template: Template | None) -> None:
        """Start what the template needs in a running sandbox."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxSelection:
    """Which sandboxes are listed, newest first by default."""

    states: Set[str]
    metadata: Mapping[str, str]
    template: str | None = None
    started_after: datetime | None = None
    is_oldest_first: bool = False

    def has(self, sandbox: Sandbox, now: datetime) -> bool:
        began_at = sandbox.started_at or sandbox.created_at
        return (
            not is_gone(sandbox, now)
            and not sandbox.name.startswith(BUILDER)
            and state_of(sandbox, now) in self.states
            and (self.started_after is None or began_at > self.started_after)
            and self.metadata.items() <= (sandbox.metadata or {}).items()
        )


class E2bSandboxes:
    """Every use case concerns the principal's own sandboxes; those of others do not exist for
    it."""

    def __init__(
        self,
        sandboxes: Sandboxes,
        deadlines: Deadlines,
        variables: Variables,
        templates: TemplateFinder,
        launcher: Launcher,
        *,
        clock: Clock,
        disk_mb: int,
    ) -> None:
        self._sandboxes = sandboxes
        self._deadlines = deadlines
        self._variables = variables
        self._templates = templates
        self._launcher = launcher
        self._clock = clock
        self._disk_mb = disk_mb
        self._resuming = KeyedLocks()

    async def create(
        self,
        wanted: NewSandboxBody,
        *,
        timeout_sec: int,
        idempotency_key: str | None,
        by: Principal,
    ) -> SandboxView:
        """A running sandbox; the same one again for the same idempotency key. If the start fails,
        nothing is left behind."""
        network, rules = wanted.traffic()
        template = await self._templates.find(wanted.template, account_id=by.account_id)
        new = NewSandbox(
            name=_name(idempotency_key),
            template_id=template.template_id,
            project_id=None,
            description=None,
            cpu_spec=max(_CPU, template.min_cpu_required),
            memory_spec=max(_MEMORY_GB, template.min_memory_required),
            max_running_seconds=clamped_timeout(timeout_sec),
            network=network,
            traffic_rules=rules.recorded(),
            metadata=wanted.metadata or {},
            is_public=wanted.is_public,
            wake_on_request=wanted.auto_resume is not None and wanted.auto_resume.enabled,
            recycle_on_timeout=not wanted.auto_pause,
            archive_id=archive_of(template, wanted.template),
        )
        return await self._start(new, template, wanted.env_vars or {}, by=by)

    async def build(self, new: NewSandbox, *, by: Principal) -> Sandbox:
        """A running sandbox to build a template in."""
        return (await self._start(new, None, {}, by=by)).sandbox

    async def copy(
        self, sandbox: Sandbox, archive_id: str, *, timeout_sec: int, by: Principal
    ) -> SandboxView:
        """A sandbox like this one that starts with these files."""
        template = await self.template_of(sandbox, by=by)
        new = _like(sandbox, archive_id, timeout_sec)
        return await self._start(new, template, await self._variables.of_sandbox(sandbox), by=by)

    async def _start(
        self,
        new: NewSandbox,
        template: Template | None,
        variables: Mapping[str, str],
        *,
        by: Principal,
    ) -> SandboxView:
        try:
            made = await self._sandboxes.create(new, template=template, by=by)
        except SandboxNameTakenError:
            return await self._made_before(new.name, by=by)
        sandbox_id = made.sandbox.sandbox_id
        try:
            for variable, value in variables.items():
                await self._variables.set(sandbox_id, variable, value, is_secret=True, by=by)
            started = await self._sandboxes.start(sandbox_id, facts=made, by=by)
            await self._launcher.launch(started, template)
        except BaseException:  # also if the caller has gone
            await asyncio.shield(self._sandboxes.recycle(sandbox_id, by=by))
            raise
        return SandboxView(started, None if template is None else template.name, self._disk_mb)

    async def running(self, name: str, *, by: Principal) -> Sandbox:
        """Raises SandboxNotFoundError if it does not run."""
        sandbox = await self._own(name, by)
        if not is_running(sandbox, self._now()):
            raise SandboxNotFoundError(f"sandbox '{name[:64]}' is not running")
        return sandbox

    async def get(self, name: str, *, by: Principal) -> SandboxView:
        return await self._described(await self._own(name, by), by)

    async def list(
        self, selection: SandboxSelection, *, by: Principal, limit: int, cursor: str | None = None
    ) -> tuple[Sequence[SandboxView], str | None]:
        """At most `limit`, and the next cursor."""
        now, only = self._now(), await self._filter(selection, by)
        sort = "created_at" if selection.is_oldest_first else "-created_at"
        if only is None:
            return [], None

        async def fetch(count: int, after: str | None) -> Page[Sandbox]:
            wanted = Listing(only, sort, count, after)
            return await self._sandboxes.list(wanted, account_id=by.account_id)

        found, following = await matching(
            fetch, lambda each: selection.has(each, now), limit=limit, cursor=cursor
        )
        names = {each.template_id: each.name for each in await self._templates.list(by.account_id)}
        view = [SandboxView(each, names.get(each.template_id), self._disk_mb) for each in found]
        return view, following

    async def _filter(self, selection: SandboxSelection, by: Principal) -> SandboxFilter | None:
        """None if there is no such template."""
        if selection.template is None:
            return SandboxFilter(is_recycled=False)
        try:
            found = await self._templates.find(selection.template, account_id=by.account_id)
        except TemplateNotFoundError:
            return None
        return SandboxFilter(is_recycled=False, template_id=found.template_id)

    async def kill(self, name: str, *, by: Principal) -> None:
        """Permanently, with its files."""
        sandbox = await self._own(name, by)
        await self._sandboxes.recycle(sandbox.sandbox_id, by=by)

    async def pause(self, name: str, *, by: Principal) -> None:
        """Its files, metadata and variables are kept; its processes end. Raises
        AlreadyPausedError."""
        sandbox = await self._own(name, by)
        if not is_running(sandbox, self._now()):
            raise AlreadyPausedError
        await self._sandboxes.stop(sandbox.sandbox_id, by=by)

    async def connect(
        self, name: str, *, timeout_sec: int, by: Principal
    ) -> tuple[SandboxView, bool]:
        """The sandbox, resumed if it was paused, and whether it was. It runs for at least this long
        from now on. Of concurrent callers one resumes it, and the others wait."""
        seen = await self._own(name, by)
        was_running = seen.status is Status.RUNNING and is_running(seen, self._now())
        async with self._resuming.of(seen.sandbox_id):
            sandbox = await self._own(name, by)
            if sandbox.status is Status.STARTING:
                sandbox = await self._sandboxes.start(sandbox.sandbox_id, by=by)
            if is_running(sandbox, self._now()):
                await self.lengthen(name, seconds=timeout_sec, by=by)
            else:
                await self._resume(sandbox, timeout_sec=timeout_sec, by=by)
        return await self.get(name, by=by), not was_running

    async def set_network(
        self, name: str, network: Network, rules: TrafficRules, *, by: Principal
    ) -> None:
        """Changes its outgoing rules; incoming ones do not change. Raises SandboxNotFoundError if
        it does not run."""
        sandbox = await self.running(name, by=by)
        now = TrafficRules.of(sandbox)
        rules = replace(
            now, allow_out=rules.allow_out, deny_out=rules.deny_out, dns_servers=rules.dns_servers
        )
        changes = Changes({"network": network, "traffic_rules": rules.recorded()})
        await self._sandboxes.change(sandbox.sandbox_id, changes, by=by)

    async def set_timeout(self, name: str, *, seconds: int, by: Principal) -> None:
        """It ends this many seconds from now. Raises SandboxNotFoundError if it does not run."""
        sandbox = await self._own(name, by)
        deadline = self._now() + timedelta(seconds=min(seconds, clamped_timeout(seconds)))
        try:
            await self._deadlines.set(sandbox.sandbox_id, deadline.timestamp(), by=by)
        except NotRunningError as error:
            raise SandboxNotFoundError from error

    async def lengthen(self, name: str, *, seconds: int, by: Principal) -> None:
        """The same, unless it would then end earlier than planned."""
        sandbox = await self._own(name, by)
        wanted = self._now() + timedelta(seconds=seconds)
        if sandbox.timeout_at is None or sandbox.timeout_at < wanted:
            await self.set_timeout(name, seconds=seconds, by=by)

    async def logs(self, name: str, *, by: Principal, lines: int) -> tuple[Sandbox, Sequence[str]]:
        """The sandbox and its program's last lines."""
        sandbox = await self._own(name, by)
        if not sandbox.attempt:
            return sandbox, []
        return sandbox, await self._sandboxes.tail_logs(
            sandbox.sandbox_id, account_id=by.account_id, lines=lines
        )

    async def _resume(self, sandbox: Sandbox, *, timeout_sec: int, by: Principal) -> None:
        sandbox_id = sandbox.sandbox_id
        if sandbox.is_active:  # its time is over, but that is not recorded yet
            await self._sandboxes.stop(sandbox_id, by=by)
        changes = Changes({"max_running_seconds": clamped_timeout(timeout_sec)})
        await self._sandboxes.change(sandbox_id, changes, by=by)
        started = await self._sandboxes.start(sandbox_id, by=by)
        template = await self.template_of(sandbox, by=by)
        await self._launcher.launch(started, template)

    async def _own(self, name: str, by: Principal) -> Sandbox:
        sandbox_id = sandbox_id_of(name)
        missing = SandboxNotFoundError(f"sandbox '{name[:64]}' was not found")
        if sandbox_id is None:
            raise missing
        try:
            found = await self._sandboxes.get(sandbox_id, account_id=by.account_id)
        except SandboxUnknownError as error:
            raise missing from error
        if is_gone(found, self._now()):
            raise missing
        return found

    async def _made_before(self, name: str, *, by: Principal) -> SandboxView:
        only = SandboxFilter(search=name, is_recycled=False)
        wanted = Listing(only, "-created_at", limit=1, cursor=None)
        page = await self._sandboxes.list(wanted, account_id=by.account_id)
        if not page.items:
            raise SandboxNotFoundError
        return await self._described(page.items[0], by)

    async def _described(self, sandbox: Sandbox, by: Principal) -> SandboxView:
        template = await self.template_of(sandbox, by=by)
        return SandboxView(sandbox, None if template is None else template.name, self._disk_mb)

    async def template_of(self, sandbox: Sandbox, *, by: Principal) -> Template | None:
        """None if it was deleted."""
        return await self._templates.find_by_id(sandbox.template_id, account_id=by.account_id)

    def _now(self) -> datetime:
        return utc_time(self._clock.now())


def _name(idempotency_key: str | None) -> str:
    if idempotency_key is None:
        return f"e2b-{secrets.token_hex(10)}"
    return f"e2b-{hashlib.sha256(idempotency_key.encode()).hexdigest()[:20]}"


def _like(sandbox: Sandbox, archive_id: str, timeout_sec: int) -> NewSandbox:
    return NewSandbox(
        name=_name(None),
        template_id=sandbox.template_id,
        project_id=sandbox.project_id,
        description=None,
        cpu_spec=sandbox.cpu_spec,
        memory_spec=sandbox.memory_spec,
        max_running_seconds=clamped_timeout(timeout_sec),
        network=sandbox.network,
        traffic_rules=sandbox.traffic_rules,
        metadata=sandbox.metadata or {},
        is_public=sandbox.is_public,
        wake_on_request=sandbox.wake_on_request,
        recycle_on_timeout=sandbox.recycle_on_timeout,
        archive_id=archive_id,
    )

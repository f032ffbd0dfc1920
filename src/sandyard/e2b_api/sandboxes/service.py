"""Use cases of E2B's API for sandboxes."""

import secrets
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta

from sandyard.e2b_api import model
from sandyard.e2b_api.errors import AlreadyPausedError, RulesUnsupportedError, SandboxNotFoundError
from sandyard.e2b_api.model import SandboxView
from sandyard.e2b_api.sandboxes.launcher import SandboxLauncher
from sandyard.e2b_api.sandboxes.schemas import RULE, NewSandboxBody
from sandyard.e2b_api.templates.finder import TemplateFinder, archive_of, matching
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.kit.errors import ConflictError
from sandyard.kit.paging import Page
from sandyard.platform.access.principal import Principal
from sandyard.platform.entities.model import Listing
from sandyard.platform.sandboxes.errors import SandboxUnknownError
from sandyard.platform.sandboxes.model import (
    Changes,
    NewSandbox,
    RunOptions,
    Sandbox,
    SandboxFilter,
    Status,
)
from sandyard.platform.sandboxes.network.traffic_rules import TrafficRules
from sandyard.platform.sandboxes.runs.deadlines import Deadlines
from sandyard.platform.sandboxes.runs.programs import SandboxPrograms
from sandyard.platform.sandboxes.secrets_model import SecretVariable
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
            not model.is_gone(sandbox, now)
            and not sandbox.name.startswith(BUILDER)
            and model.state_of(sandbox, now) in self.states
            and (self.started_after is None or began_at >= self.started_after)
            and self.metadata.items() <= (sandbox.metadata or {}).items()
        )


@dataclass(frozen=True, slots=True)
class E2bSandboxes:
    """Every use case concerns the principal's own sandboxes; those of others do not exist for
    it."""

    sandboxes: Sandboxes
    deadlines: Deadlines
    programs: SandboxPrograms
    variables: Variables
    templates: TemplateFinder
    launcher: SandboxLauncher
    clock: Clock
    disk_mb: int
    resuming: KeyedLocks = field(default_factory=KeyedLocks)

    async def create(
        self, wanted: NewSandboxBody, *, timeout_sec: int, by: Principal
    ) -> SandboxView:
        """A running sandbox. If the start fails, nothing is left behind."""
        network, rules = wanted.traffic()
        template = await self.templates.find(wanted.template, account_id=by.account_id)
        new = NewSandbox(
            name=_name(),
            template_id=template.template_id,
            project_id=None,
            description=None,
            cpu_spec=max(_CPU, template.min_cpu_required),
            memory_spec=max(_MEMORY_GB, template.min_memory_required),
            max_running_seconds=model.clamped_timeout(timeout_sec),
            network=network,
            traffic_rules=rules.recorded(),
            metadata=wanted.metadata or {},
            is_public=wanted.is_public,
            wake_on_request=wanted.auto_resume is not None and wanted.auto_resume.enabled,
            recycle_on_timeout=not wanted.auto_pause,
            keeps_memory=wanted.auto_pause_memory is not False,
            archive_id=archive_of(template, wanted.template),
            volumes=[each.model_dump() for each in wanted.volume_mounts or ()],
        )
        given = [SecretVariable(*each) for each in (wanted.env_vars or {}).items()]
        return await self._start(new, template, [*given, *wanted.bound_headers()], by=by)

    async def copy(
        self, sandbox: Sandbox, archive_id: str, *, timeout_sec: int, by: Principal
    ) -> SandboxView:
        """A sandbox like this one that starts with these files."""
        template = await self.template_of(sandbox, by=by)
        new = _like(sandbox, archive_id, timeout_sec)
        return await self._start(new, template, await self.variables.copies_of(sandbox), by=by)

    async def _start(
        self,
        new: NewSandbox,
        template: Template | None,
        variables: Sequence[SecretVariable],
        *,
        by: Principal,
    ) -> SandboxView:
        started = await self.sandboxes.create_and_start(
            new,
            template=template,
            secrets=variables,
            prepare=lambda sandbox: self.launcher.launch(sandbox, template),
            by=by,
        )
        return self._view(started, template)

    async def running(self, name: str, *, by: Principal) -> Sandbox:
        """Raises SandboxNotFoundError if it does not run."""
        sandbox = await self._own(name, by)
        if not model.is_running(sandbox, self._now()):
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
            return await self.sandboxes.list(wanted, account_id=by.account_id)

        found, following = await matching(
            fetch, lambda each: selection.has(each, now), limit=limit, cursor=cursor
        )
        names = {each.template_id: each.name for each in await self.templates.list(by.account_id)}
        view = [SandboxView(each, names.get(each.template_id), self.disk_mb) for each in found]
        return view, following

    async def _filter(self, selection: SandboxSelection, by: Principal) -> SandboxFilter | None:
        """None if there is no such template."""
        if selection.template is None:
            return SandboxFilter(is_recycled=False)
        try:
            found = await self.templates.find(selection.template, account_id=by.account_id)
        except TemplateNotFoundError:
            return None
        return SandboxFilter(is_recycled=False, template_id=found.template_id)

    async def kill(self, name: str, *, by: Principal) -> None:
        sandbox = await self._own(name, by)
        await self.sandboxes.recycle(sandbox.sandbox_id, by=by)

    async def pause(self, name: str, *, has_memory: bool | None, by: Principal) -> None:
        """Its files, metadata and variables are kept; its memory and processes too, if its
        isolation can keep them and `has_memory` is not False. Raises AlreadyPausedError,
        MemoryNotKeptError."""
        sandbox = await self._own(name, by)
        if not model.is_running(sandbox, self._now()):
            raise AlreadyPausedError
        is_kept = sandbox.can_keep_memory and has_memory is not False
        await self.sandboxes.stop(sandbox.sandbox_id, has_memory=is_kept, ends_access=False, by=by)

    async def connect(
        self,
        name: str,
        *,
        timeout_sec: int,
        by: Principal,
        must_be_paused: bool = False,
        restores_memory: bool = True,
    ) -> tuple[SandboxView, bool]:
        """The sandbox, resumed if it was paused, and whether it was; from its files alone unless it
        `restores_memory`. It runs for at least this long
        from now on. Of concurrent callers one resumes it, and the others wait. Raises ConflictError
        if it must be paused and runs."""
        seen = await self._own(name, by)
        was_running = seen.status is Status.RUNNING and model.is_running(seen, self._now())
        if was_running and must_be_paused:
            raise ConflictError(f"sandbox {name} is running")
        async with self.resuming.of(seen.sandbox_id):
            sandbox = await self._own(name, by)
            if sandbox.status is Status.STARTING:
                sandbox = await self.sandboxes.start(sandbox.sandbox_id, by=by)
            if model.is_running(sandbox, self._now()):
                await self._lengthen(sandbox, seconds=timeout_sec, by=by)
            else:
                await self._resume(
                    sandbox, timeout_sec=timeout_sec, restores_memory=restores_memory, by=by
                )
        return await self._described(sandbox, by), not was_running

    async def set_network(
        self,
        name: str,
        network: Network,
        rules: TrafficRules,
        headers: Sequence[SecretVariable],
        *,
        by: Principal,
    ) -> None:
        """Changes its outgoing rules; incoming ones do not change. Raises SandboxNotFoundError if
        it does not run, RulesUnsupportedError if it was started without headers to set."""
        sandbox = await self.running(name, by=by)
        await self._set_headers(sandbox, headers, by)
        now = TrafficRules.of(sandbox)
        rules = replace(
            now, allow_out=rules.allow_out, deny_out=rules.deny_out, dns_servers=rules.dns_servers
        )
        changes = Changes({"network": network, "traffic_rules": rules.recorded()})
        await self.sandboxes.change(sandbox.sandbox_id, changes, by=by)

    async def _set_headers(
        self, sandbox: Sandbox, headers: Sequence[SecretVariable], by: Principal
    ) -> None:
        variables, holder = self.variables, sandbox.sandbox_id
        found = [each.name for each in await variables.store.bound_of([holder])]
        if headers and not found:
            raise RulesUnsupportedError
        for each in headers:
            await variables.set(
                *(holder, each.name, each.value), is_secret=True, by=by, binding=each.binding
            )
        for name in set(found) - {each.name for each in headers}:
            if name.startswith(RULE):
                await variables.remove(holder, name, by=by)

    async def set_timeout(self, name: str, *, seconds: int, by: Principal) -> None:
        """It ends this many seconds from now. Raises SandboxNotFoundError if it does not run."""
        await self._end_in(await self._own(name, by), seconds, by)

    async def lengthen(self, name: str, *, seconds: int, by: Principal) -> None:
        """The same, unless it would then end earlier than planned."""
        await self._lengthen(await self._own(name, by), seconds=seconds, by=by)

    async def _lengthen(self, sandbox: Sandbox, *, seconds: int, by: Principal) -> None:
        wanted = self._now() + timedelta(seconds=seconds)
        if sandbox.timeout_at is None or sandbox.timeout_at < wanted:
            await self._end_in(sandbox, seconds, by)

    async def _end_in(self, sandbox: Sandbox, seconds: int, by: Principal) -> None:
        deadline = self._now() + timedelta(seconds=min(seconds, model.MAX_TIMEOUT_SEC))
        try:
            await self.deadlines.set(sandbox.sandbox_id, deadline.timestamp(), by=by)
        except NotRunningError as error:
            raise SandboxNotFoundError from error

    async def logs(self, name: str, *, by: Principal, lines: int) -> tuple[Sandbox, Sequence[str]]:
        """The sandbox and its program's last lines."""
        sandbox = await self._own(name, by)
        if not sandbox.attempt:
            return sandbox, []
        return sandbox, await self.programs.tail_logs(
            sandbox.sandbox_id, account_id=by.account_id, lines=lines
        )

    async def _resume(
        self, sandbox: Sandbox, *, timeout_sec: int, restores_memory: bool, by: Principal
    ) -> None:
        sandbox_id = sandbox.sandbox_id
        if sandbox.is_active:  # its time is over, but that is not recorded yet
            await self.sandboxes.stop(sandbox_id, ends_access=False, by=by)
        options = RunOptions(model.clamped_timeout(timeout_sec), restores_memory=restores_memory)
        started = await self.sandboxes.start(sandbox_id, by=by, options=options)
        template = await self.template_of(sandbox, by=by)
        await self.launcher.launch(started, template)

    async def _own(self, name: str, by: Principal) -> Sandbox:
        sandbox_id = model.sandbox_id_of(name)
        missing = SandboxNotFoundError(f"sandbox '{name[:64]}' was not found")
        if sandbox_id is None:
            raise missing
        try:
            found = await self.sandboxes.get(sandbox_id, account_id=by.account_id)
        except SandboxUnknownError as error:
            raise missing from error
        if model.is_gone(found, self._now()):
            raise missing
        return found

    async def _described(self, sandbox: Sandbox, by: Principal) -> SandboxView:
        return self._view(sandbox, await self.template_of(sandbox, by=by))

    def _view(self, sandbox: Sandbox, template: Template | None) -> SandboxView:
        return SandboxView(sandbox, None if template is None else template.name, self.disk_mb)

    async def template_of(self, sandbox: Sandbox, *, by: Principal) -> Template | None:
        return await self.templates.find_by_id(sandbox.template_id, account_id=by.account_id)

    def _now(self) -> datetime:
        return utc_time(self.clock.now())


def _name() -> str:
    return f"e2b-{secrets.token_hex(10)}"


def _like(sandbox: Sandbox, archive_id: str, timeout_sec: int) -> NewSandbox:
    same = {each.name: getattr(sandbox, each.name) for each in fields(NewSandbox)}
    own = {
        "name": _name(),
        "description": None,
        "max_running_seconds": model.clamped_timeout(timeout_sec),
        "metadata": sandbox.metadata or {},
        "archive_id": archive_id,
    }
    return NewSandbox(**same | own)

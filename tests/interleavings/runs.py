"""Sandboxes, usages and machines as a value that only knows compare-and-set, and the Platform's use
cases over it."""

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any, cast

from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.clock import utc_time
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.quotas.model import QuotaCheck, QuotaRequest, Resources, check_quota
from sandyard.platform.quotas.storage import StorageQuota
from sandyard.platform.sandboxes.model import (
    DEFAULT_OPTIONS,
    ProjectState,
    RunOptions,
    Sandbox,
)
from sandyard.platform.sandboxes.node import SandboxIds, SandboxNode
from sandyard.platform.sandboxes.ports import SandboxStore
from sandyard.platform.sandboxes.runs.deadlines import Deadlines
from sandyard.platform.sandboxes.runs.end_model import ActiveRun
from sandyard.platform.sandboxes.runs.jobs import Reconcile
from sandyard.platform.sandboxes.runs.recorder import RunRecorder
from sandyard.platform.sandboxes.runs.starts import SandboxStarts
from sandyard.platform.sandboxes.service import Sandboxes
from sandyard.platform.templates.model import Template
from sandyard.platform.usage.model import PriceList, Usage
from sandyard.runtime.errors import AttemptEndedError, NotRunningError, RunNotFoundError
from sandyard.runtime.model import Ended, Kind, Limits, RunId, Running, RunState
from sandyard.runtime.ports import Runtime
from sandyard.runtime.secrets_model import NO_SECRETS, MachineSecrets
from tests.interleavings.explorer import Port, Program, Request

OWNER = Principal("1" * 12, Role.USER)
SILENT_SEC = 10
RUN_SEC = 60
PRICES = PriceList(Decimal("0.05"), Decimal("0.01"), Decimal("0.0003"))
PROJECT = ProjectState("prj-1", OWNER.account_id, is_archived=False)
TEMPLATE = Template(
    name="shop",
    description=None,
    category="web",
    language="python",
    min_cpu_required=1,
    min_memory_required=0.5,
    is_official=True,
    is_public=True,
    repository_url="builtin:python",
    tags=None,
    template_id="tpl-1",
    owner_account_id=None,
    created_at=utc_time(0),
    updated_at=utc_time(0),
)
Entry = Sandbox | Usage


@dataclass(frozen=True, slots=True)
class Machine:
    """A run as its node has it, or had it before it was forgotten."""

    node: str
    state: Running | Ended
    is_forgotten: bool = False
    starts: int = 1

    def at(self, now: int) -> "Machine":
        """What has become of it by now."""
        state = self.state
        if isinstance(state, Ended) or state.deadline_at > now:
            return self
        ended = Ended(state.run_id, "timeout", state.deadline_at, state.started_at)
        return replace(self, state=ended)


@dataclass(frozen=True, slots=True)
class RunsWorld:
    entries: frozenset[Entry]
    machines: frozenset[Machine] = frozenset()
    compares: bool = True
    """Switched off only to show that the search finds what then goes wrong."""
    log: tuple[Event, ...] = field(default=(), compare=False)
    """In the order of writing, on the way by which this world was first reached."""

    @property
    def sandboxes(self) -> list[Sandbox]:
        found = [each for each in self.entries if isinstance(each, Sandbox)]
        return sorted(found, key=lambda each: each.sandbox_id)

    @property
    def usages(self) -> list[Usage]:
        found = [each for each in self.entries if isinstance(each, Usage)]
        return sorted(found, key=lambda each: each.usage_id)

    def machine(self, run_id: RunId) -> Machine | None:
        return next((each for each in self.machines if each.state.run_id == run_id), None)

    def perform(self, request: Request, now: int) -> tuple["RunsWorld", Any]:
        do: Callable[..., tuple[RunsWorld, Any]] = getattr(self, f"do_{request.name}")
        settled = frozenset(each.at(now) for each in self.machines)
        return do(replace(self, machines=settled), now, *request.arguments)

    @staticmethod
    def do_begin(world: "RunsWorld", _now: int) -> tuple["RunsWorld", None]:
        """A process may begin at any time, and reads the clock then."""
        return world, None

    @staticmethod
    def do_find(world: "RunsWorld", _now: int, sandbox_id: str) -> tuple["RunsWorld", Any]:
        """The sandbox and its open usage, in one transaction."""
        for each in world.sandboxes:
            if each.sandbox_id == sandbox_id:
                open_ = [u for u in world.usages if u.end_time is None]
                return world, (each, next((u for u in open_ if u.sandbox_id == sandbox_id), None))
        return world, None

    @staticmethod
    def do_rows(world: "RunsWorld", _now: int) -> tuple["RunsWorld", Any]:
        return world, tuple(world.sandboxes)

    @staticmethod
    def do_set(
        world: "RunsWorld", _now: int, *transitions: Transition[Any]
    ) -> tuple["RunsWorld", bool]:
        entries = {_key(each): each for each in world.entries}
        for each in transitions:
            there = entries.get(_key(each.before or each.after))
            before = each.before and each.before.sequence
            if world.compares and (there and there.sequence) != before:
                return world, False
        for each in transitions:
            entries[_key(each.result)] = each.result
        events = tuple(event for each in transitions for event in each.events)
        after = replace(world, entries=frozenset(entries.values()), log=world.log + events)
        return after, True

    @staticmethod
    def do_seen(
        world: "RunsWorld", _now: int, ids: tuple[str, ...], at: datetime
    ) -> tuple["RunsWorld", None]:
        entries = frozenset(
            replace(each, last_seen_at=at)
            if isinstance(each, Sandbox)
            and each.sandbox_id in ids
            and each.is_active
            and (each.last_seen_at or at) <= at
            else each
            for each in world.entries
        )
        return replace(world, entries=entries), None

    @staticmethod
    def do_start(
        world: "RunsWorld", now: int, node: str, run_id: RunId, seconds: float
    ) -> tuple["RunsWorld", Any]:
        there = world.machine(run_id)
        if there is None:
            made = Machine(node, Running(run_id, 8080, now, now + seconds))
            return replace(world, machines=world.machines | {made}), made.state
        if there.is_forgotten:
            again = replace(there, is_forgotten=False, starts=there.starts + 1)
            return world._with(there, again), there.state
        if isinstance(there.state, Ended):
            return world, AttemptEndedError()
        return world, there.state

    @staticmethod
    def do_look(world: "RunsWorld", _now: int, run_id: RunId) -> tuple["RunsWorld", Any]:
        there = world.machine(run_id)
        return world, None if there is None or there.is_forgotten else there.state

    @staticmethod
    def do_stop(world: "RunsWorld", now: int, run_id: RunId) -> tuple["RunsWorld", Any]:
        there = world.machine(run_id)
        if there is None or there.is_forgotten:
            return world, RunNotFoundError()
        if isinstance(there.state, Ended):
            return world, there.state
        ended = Ended(run_id, "stopped", now, there.state.started_at)
        return world._with(there, replace(there, state=ended)), ended

    @staticmethod
    def do_extend(
        world: "RunsWorld", _now: int, run_id: RunId, deadline_at: float
    ) -> tuple["RunsWorld", Any]:
        there = world.machine(run_id)
        if there is None or there.is_forgotten:
            return world, RunNotFoundError()
        if isinstance(there.state, Ended):
            return world, NotRunningError()
        moved = replace(there.state, deadline_at=deadline_at)
        return world._with(there, replace(there, state=moved)), moved

    @staticmethod
    def do_forget(world: "RunsWorld", _now: int, run_id: RunId) -> tuple["RunsWorld", None]:
        there = world.machine(run_id)
        if there is None:
            return world, None
        return world._with(there, replace(there, is_forgotten=True)), None

    @staticmethod
    def do_runs(world: "RunsWorld", _now: int, node: str) -> tuple["RunsWorld", Any]:
        found = [
            each.state.run_id
            for each in world.machines
            if each.node == node and not each.is_forgotten
        ]
        return world, tuple(sorted(found, key=str))

    def _with(self, before: Machine, after: Machine) -> "RunsWorld":
        return replace(self, machines=self.machines - {before} | {after})


def _key(entry: Any) -> tuple[str, ...]:
    match entry:
        case Sandbox():
            return "sandbox", entry.sandbox_id
        case Usage():
            return "usage", entry.usage_id
        case _:
            return "notification", entry.notification_id


class SteppedSandboxes:
    """The port to the store: every read and every compare-and-set is one step."""

    def __init__(self, port: Port) -> None:
        self._port = port

    async def apply(self, *transitions: Transition[Any]) -> bool:
        told = [each for each in transitions if isinstance(each.after, Sandbox | Usage)]
        return bool(await self._port.call("set", *told))

    async def find(self, sandbox_id: str, *, account_id: str | None = None) -> Sandbox | None:
        del account_id
        found = await self._port.call("find", sandbox_id)
        return None if found is None else cast("Sandbox", found[0])

    async def find_with_usage(self, sandbox_id: str) -> Any:
        return await self._port.call("find", sandbox_id)

    async def find_project(self, account_id: str, project_id: str | None) -> ProjectState:
        del account_id, project_id
        return PROJECT

    async def check_quota(self, request: QuotaRequest) -> QuotaCheck:
        return check_quota(request, Resources(0, 0, 0, 0))

    async def active_on(self, node: str) -> Sequence[Sandbox]:
        return [each for each in await self._rows() if each.is_active and each.node == node]

    async def active_runs(self, node: str) -> Sequence[ActiveRun]:
        found = await self.active_on(node)
        return [ActiveRun(*(getattr(each, of.name) for of in fields(ActiveRun))) for each in found]

    async def active_of(self, node: str, sandbox_ids: Sequence[str]) -> Sequence[Sandbox]:
        return [each for each in await self.active_on(node) if each.sandbox_id in sandbox_ids]

    async def active_elsewhere(self, node: str, *, unseen_since: datetime) -> Sequence[Sandbox]:
        return [
            each
            for each in await self._rows()
            if each.is_active
            and each.node != node
            and (each.last_seen_at is None or each.last_seen_at <= unseen_since)
        ]

    async def active_of_deactivated(self, node: str) -> Sequence[Sandbox]:
        del node
        return []

    async def to_recycle(self, node: str, *, now: datetime) -> Sequence[Sandbox]:
        del node, now
        return []

    async def note_seen(self, sandbox_ids: Sequence[str], *, at: datetime) -> None:
        if sandbox_ids:
            await self._port.call("seen", tuple(sandbox_ids), at)

    async def in_use(self, account_id: str, *, workspace_gb: float) -> Resources:
        del account_id, workspace_gb
        return Resources(0, 0, 0, 0)

    async def _rows(self) -> Sequence[Sandbox]:
        return cast("Sequence[Sandbox]", await self._port.call("rows"))


class SteppedRuntime:
    """The port to the machines of one node; each call is one step."""

    def __init__(self, port: Port, node: str) -> None:
        self._port = port
        self._node = node

    async def check(self, _isolation: Any = None) -> None:
        """It can start machines."""

    async def start(self, run_id: RunId, _program: Any, limits: Limits) -> Running:
        seconds = limits.max_running_sec
        return cast("Running", await self._port.call("start", self._node, run_id, seconds))

    async def stop(self, run_id: RunId, *, has_memory: bool = False) -> Ended:
        del has_memory
        return cast("Ended", await self._port.call("stop", run_id))

    async def find(self, run_id: RunId) -> RunState | None:
        return cast("RunState | None", await self._port.call("look", run_id))

    async def refresh(self, run_id: RunId) -> RunState | None:
        return await self.find(run_id)

    async def extend(self, run_id: RunId, *, deadline_at: float) -> Running:
        return cast("Running", await self._port.call("extend", run_id, deadline_at))

    async def forget(self, run_id: RunId) -> None:
        await self._port.call("forget", run_id)

    async def run_ids(self, kind: Kind) -> Sequence[RunId]:
        del kind
        return cast("Sequence[RunId]", await self._port.call("runs", self._node))

    async def versions(self, kind: Kind) -> Mapping[RunId, object]:
        """In a scope this small each is asked."""
        del kind
        return {}

    async def list_runs(self, kind: Kind) -> Sequence[RunState]:
        del kind
        return []

    async def has_snapshot(self, snapshot_id: str) -> bool:
        del snapshot_id
        return False


class _Known:
    """What never changes here: the template, and that there are no variables or secrets."""

    async def find(self, account_id: str, template_id: str) -> Template:
        del account_id, template_id
        return TEMPLATE

    async def of_sandbox(self, sandbox: Sandbox) -> Mapping[str, str]:
        del sandbox
        return {}

    async def secrets_of(self, sandbox: Sandbox, *, run: str) -> MachineSecrets:
        del sandbox, run
        return NO_SECRETS


class _InTheForeground(SandboxStarts):
    """The same start, for whoever waits for it."""

    work: Coroutine[Any, Any, None] | None = None

    def begin(
        self,
        sandbox: Sandbox,
        attempt: int,
        template: Template | None,
        options: RunOptions,
        *,
        actor: str,
    ) -> None:
        self.work = self._run(sandbox, attempt, template, options, actor)


class Services:
    """The Platform's use cases about runs in one process of a node."""

    def __init__(self, port: Port, node: str, actor: str) -> None:
        store = cast("SandboxStore", SteppedSandboxes(port))
        numbers = count(1)
        self.node = SandboxNode(
            name=node,
            store=store,
            runtime=cast("Runtime", SteppedRuntime(port, node)),
            clock=port,
            prices=PRICES,
            quota=Resources(9, 9, 9, 9),
            per_account=9,
            processes=9,
            storage_bytes=10**9,
            silent_for=timedelta(seconds=SILENT_SEC),
            snapshot_retention=timedelta(days=7),
            preview_url=lambda running: str(running.run_id),
            ids=SandboxIds(usage=lambda: f"usg-{actor}-{next(numbers)}", notification=lambda: "n"),
        )
        recorder, known = RunRecorder(self.node), cast("Any", _Known())
        storage = StorageQuota(cast("Any", store), limit_gb=99, workspace_gb=1)
        self.sandboxes = Sandboxes(self.node, known, recorder, known, None, storage)
        networks = self.sandboxes._networks
        self._starts = _InTheForeground(self.node, recorder, known, networks, None)
        self.sandboxes._starts = self._starts
        self.deadlines = Deadlines(self.node, recorder)
        self.reconcile = Reconcile(self.node, self.sandboxes, recorder)

    async def start(self, sandbox_id: str) -> Any:
        await self.sandboxes._begin_start(sandbox_id, OWNER, None, DEFAULT_OPTIONS)
        if (work := self._starts.work) is not None:
            await work
        return None


Call = Callable[[Services], Coroutine[Any, Any, Any]]


def program(call: Call, *, node: str = "one", actor: str = "a") -> Program:
    """Of a process that makes this one call; its answer does not matter."""

    async def run(port: Port) -> None:
        await port.call("begin")
        await call(Services(port, node, actor))

    return run


def open_usages(world: RunsWorld) -> Iterator[Usage]:
    return (each for each in world.usages if each.end_time is None)

"""Sandboxes as targets of the gateway: looked up by id, and woken for a request."""

from dataclasses import dataclass
from typing import Protocol

from sandyard.kit.changes.events import actor
from sandyard.kit.ids import is_resource_id
from sandyard.kit.node import require_here
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.sandboxes.errors import SandboxElsewhereError, SandboxUnknownError
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.network.traffic_rules import RuledPorts, TrafficRules
from sandyard.platform.sandboxes.ports import SandboxStore
from sandyard.platform.sandboxes.runs.activity import Activity
from sandyard.platform.sandboxes.runs.recorder import run_id_of
from sandyard.platform.sandboxes.service import Sandboxes
from sandyard.runtime.model import RunId
from sandyard.runtime.sessions.ports import Ports, Session

_NOT_RUNNING = {
    Status.CREATED: "This sandbox was never started. Start it first.",
    Status.STARTING: "This sandbox is starting. Try again shortly.",
    Status.STOPPED: "This sandbox is stopped. Start it again to see it here.",
    Status.TIMEOUT: "This sandbox's time is over. Start it again to see it here.",
}


@dataclass(frozen=True, slots=True)
class ReachableSandbox:
    sandbox: Sandbox

    @property
    def account_id(self) -> str:
        return self.sandbox.owner_account_id

    @property
    def is_public(self) -> bool:
        return self.sandbox.is_public

    @property
    def is_running(self) -> bool:
        return self.sandbox.status is Status.RUNNING

    @property
    def wakes(self) -> bool:
        return self.sandbox.wake_on_request

    @property
    def reports_missing_token(self) -> bool:
        return TrafficRules.of(self.sandbox).tells_of_token

    @property
    def not_running_reason(self) -> str:
        return _NOT_RUNNING.get(self.sandbox.status, "This sandbox does not run.")


@dataclass(frozen=True, slots=True)
class _Request(Principal):
    """The principal that starts a sandbox woken by a request."""

    @property
    def actor(self) -> str:
        return actor("system", "gateway")


class SessionOpener(Protocol):
    async def session(self, run_id: RunId) -> Session:
        """Like `Runtime.session`."""
        ...


class SandboxTargets:
    def __init__(
        self,
        store: SandboxStore,
        sandboxes: Sandboxes,
        sessions: SessionOpener,
        *,
        node: str,
        program_port: int,
        activity: Activity,
    ) -> None:
        self._store = store
        self._sandboxes = sandboxes
        self._sessions = sessions
        self._node = node
        self._program_port = program_port
        self._activity = activity

    async def find(self, target_id: str) -> ReachableSandbox | None:
        """None for a recycled one."""
        found = await self._find(target_id)
        if found is None or found.status is Status.RECYCLED:
            return None
        return ReachableSandbox(found)

    async def ports(self, target_id: str) -> Ports:
        sandbox = await self._find(target_id)
        if sandbox is None:
            raise SandboxUnknownError
        require_here(sandbox.node, node=self._node, error=SandboxElsewhereError)
        ports = (await self._sessions.session(run_id_of(sandbox))).ports
        if sandbox.traffic_rules is not None:
            ports = RuledPorts(ports, TrafficRules.of(sandbox))
        return self._activity.watch(sandbox, ports)

    async def wake(self, target_id: str) -> ReachableSandbox:
        sandbox = await self._find(target_id)
        if sandbox is None:
            raise SandboxUnknownError
        owner = _Request(sandbox.owner_account_id, Role.USER)
        return ReachableSandbox(await self._sandboxes.start(target_id, by=owner))

    async def is_owned(self, target_id: str, *, account_id: str) -> bool:
        found = await self._find(target_id)
        return found is not None and found.owner_account_id == account_id

    async def program_port(self, target_id: str) -> int | None:  # noqa: ARG002 - all have the same
        return self._program_port

    async def _find(self, target_id: str) -> Sandbox | None:
        return await self._store.find(target_id) if is_resource_id("sbx", target_id) else None

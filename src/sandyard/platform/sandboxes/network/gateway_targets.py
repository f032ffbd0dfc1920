"""Sandboxes as targets of the gateway: looked up by id, and woken for a request."""

from collections.abc import Collection
from dataclasses import dataclass

from sandyard.kit.changes.events import actor
from sandyard.kit.ids import is_resource_id
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.network.traffic_rules import RuledPorts, TrafficRules
from sandyard.platform.sandboxes.node import SandboxNode, run_id_of
from sandyard.platform.sandboxes.runs.activity import Activity
from sandyard.platform.sandboxes.service import Sandboxes
from sandyard.runtime.model import Running
from sandyard.runtime.sessions.ports import Ports

_GATEWAY = actor("system", "gateway")
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
    def public_ports(self) -> Collection[int]:
        return self.sandbox.public_ports or ()

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


class SandboxTargets:
    def __init__(
        self, node: SandboxNode, sandboxes: Sandboxes, activity: Activity, *, program_port: int
    ) -> None:
        self._node = node
        self._sandboxes = sandboxes
        self._activity = activity
        self._program_port = program_port

    async def find(self, target_id: str) -> ReachableSandbox | None:
        """None for a recycled one, and while its account is deactivated."""
        found = await self._find(target_id)
        if found is None or found.status is Status.RECYCLED:
            return None
        return ReachableSandbox(found)

    async def ports(self, target_id: str) -> Ports:
        sandbox = await self._node.get(target_id, account_id=None)
        self._node.require_here(sandbox)
        ports = (await self._node.runtime.session(run_id_of(sandbox))).ports
        if sandbox.traffic_rules is not None:
            ports = RuledPorts(ports, TrafficRules.of(sandbox))
        return self._activity.watch(sandbox, ports)

    async def wake(self, target_id: str) -> ReachableSandbox:
        sandbox = await self._node.get(target_id, account_id=None)
        owner = Principal(sandbox.owner_account_id, Role.USER, acts_as=_GATEWAY)
        return ReachableSandbox(await self._sandboxes.start(target_id, by=owner))

    async def is_owned(self, target_id: str, *, account_id: str) -> bool:
        found = await self._find(target_id)
        return found is not None and found.owner_account_id == account_id

    async def program_port(self, target_id: str) -> int | None:
        """That of its image, while it runs; else the usual one."""
        sandbox = await self._node.get(target_id, account_id=None)
        run = await self._node.runtime.find(run_id_of(sandbox)) if sandbox.attempt else None
        return run.port if isinstance(run, Running) else self._program_port

    async def _find(self, target_id: str) -> Sandbox | None:
        if not is_resource_id("sbx", target_id):
            return None
        return await self._node.store.find_of_active(target_id)

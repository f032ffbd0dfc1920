"""Changes the network of running sandboxes, and reads their egress reports."""

from contextlib import suppress
from dataclasses import replace

from sandyard.platform.sandboxes.model import Changes, Sandbox
from sandyard.platform.sandboxes.network.traffic_rules import TrafficRules
from sandyard.platform.sandboxes.node import SandboxNode, run_id_of
from sandyard.runtime.errors import NotRunningError, RunNotFoundError
from sandyard.runtime.model import RunId
from sandyard.runtime.network_model import EgressReport, EgressRules, Network

_ENFORCED = frozenset({"network", "traffic_rules"})


class SandboxNetworks:
    def __init__(self, node: SandboxNode) -> None:
        self._node = node
        self._runtime = node.runtime

    def require_here(self, sandbox: Sandbox, changes: Changes) -> None:
        """Raises SandboxElsewhereError if only another node could enforce the change."""
        if sandbox.is_active and not _ENFORCED.isdisjoint(changes.values):
            self._node.require_here(sandbox)

    async def enforce(self, sandbox: Sandbox, changes: Changes) -> None:
        """Takes effect at once where it runs; after an outage the caller may repeat it."""
        if sandbox.is_active and not _ENFORCED.isdisjoint(changes.values):
            await self._set(run_id_of(sandbox), replace(sandbox, **changes.values))

    async def catch_up(self, began: Sandbox, now: Sandbox, run_id: RunId) -> None:
        """For a sandbox that now runs: changes made while it started could not be enforced then."""
        if _enforced(now) != _enforced(began):
            await self._set(run_id, now)

    async def _set(self, run_id: RunId, sandbox: Sandbox) -> None:
        with suppress(NotRunningError, RunNotFoundError):
            await self._runtime.set_network(run_id, *_enforced(sandbox))

    async def report(self, sandbox: Sandbox) -> EgressReport:
        try:
            return await self._runtime.egress_report(run_id_of(sandbox))
        except RunNotFoundError:
            return EgressReport(sandbox.network)


def _enforced(sandbox: Sandbox) -> tuple[Network, EgressRules]:
    return sandbox.network, TrafficRules.of(sandbox).egress

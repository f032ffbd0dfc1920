"""Secrets that are bound to hosts, while sandboxes run: changes, and what is used."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from sandyard.kit.concurrency.tasks import for_each
from sandyard.kit.errors import SandyardError
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.node import SandboxNode, run_id_of
from sandyard.platform.sandboxes.retried_later import retried_later
from sandyard.platform.variables.service import Variables, holders_of
from sandyard.runtime.model import RunId
from sandyard.runtime.secrets_model import BoundSecret

_AT_ONCE = 64


class SecretSync:
    """For the sandboxes of this node. A secret that is changed or removed is so for running
    sandboxes with the next run of this job; a server that has just started asks what they have."""

    def __init__(self, node: SandboxNode, variables: Variables) -> None:
        self._node = node
        self._variables = variables
        self._known: dict[RunId, Sequence[BoundSecret]] = {}
        """What each run was last told."""

    async def run(self) -> None:
        active = await self._node.store.active_on(self._node.name)
        running = {run_id_of(each): each for each in active if each.status is Status.RUNNING}
        holders = {each for sandbox in running.values() for each in holders_of(sandbox)}
        bound = await self._variables.store.bound_of(sorted(holders))
        with_bound = {each.holder_id for each in bound}

        async def sync(each: tuple[RunId, Sandbox]) -> None:
            run_id, sandbox = each
            with retried_later("secrets", sandbox.sandbox_id):
                is_bound = not with_bound.isdisjoint(holders_of(sandbox))
                await self._sync(run_id, sandbox, is_bound=is_bound)

        # an egress proxy that its machine keeps busy delays its own answer alone
        await for_each(running.items(), sync, slots=asyncio.Semaphore(_AT_ONCE))
        for run_id in self._known.keys() - running.keys():
            if self._known.pop(run_id):
                with suppress(SandyardError):  # what it used at last is lost with its record
                    await self._note_uses(run_id)

    async def _sync(self, run_id: RunId, sandbox: Sandbox, *, is_bound: bool) -> None:
        variables, run = self._variables, str(run_id)
        bound = await variables.bound_for(sandbox, run=run) if is_bound else ()
        known = self._known.get(run_id)
        if known is None and not bound:
            report = await self._node.runtime.egress_report(run_id)
            known = None if report.secrets else ()
        if known is None or list(known) != list(bound):
            await self._node.runtime.set_secrets(run_id, variables.issued(sandbox, bound))
        self._known[run_id] = bound
        if bound:
            await self._note_uses(run_id)

    async def _note_uses(self, run_id: RunId) -> None:
        report = await self._node.runtime.egress_report(run_id)
        if uses := [each for each in report.secrets if each.requests]:
            await self._variables.note_uses(str(run_id), uses)

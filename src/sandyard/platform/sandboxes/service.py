"""Use cases of an account's sandboxes. The runtime has the actual state."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from sandyard.kit.changes.transitions import Transition, apply_decision
from sandyard.kit.errors import SandyardError
from sandyard.kit.paging import Page
from sandyard.kit.sizes import GIGABYTE
from sandyard.platform.access.principal import Principal
from sandyard.platform.entities.model import Listing
from sandyard.platform.quotas.model import CountQuota, QuotaCheck, QuotaRequest, ResourceKind
from sandyard.platform.quotas.storage import StorageQuota
from sandyard.platform.sandboxes import model
from sandyard.platform.sandboxes.errors import SandboxChangedError
from sandyard.platform.sandboxes.model import (
    DEFAULT_OPTIONS,
    Changes,
    NewSandbox,
    PricedSandbox,
    ProjectState,
    RunOptions,
    Sandbox,
    SandboxFilter,
    StartFacts,
    Status,
)
from sandyard.platform.sandboxes.network.enforcement import SandboxNetworks
from sandyard.platform.sandboxes.node import SandboxNode, run_id_of
from sandyard.platform.sandboxes.ports import TemplateFinder, WritableVariables
from sandyard.platform.sandboxes.retried_later import retried_later
from sandyard.platform.sandboxes.runs.model import Transitions, recycle_sandbox, request_recycling
from sandyard.platform.sandboxes.runs.node_files import NodeFiles
from sandyard.platform.sandboxes.runs.program import isolation_of
from sandyard.platform.sandboxes.runs.recorder import RunRecorder
from sandyard.platform.sandboxes.runs.starts import SandboxStarts
from sandyard.platform.sandboxes.runs.warm import WarmSandboxes
from sandyard.platform.sandboxes.secrets_model import SecretVariable
from sandyard.platform.templates.model import Template
from sandyard.runtime.errors import RunNotFoundError
from sandyard.runtime.network_model import EgressReport

_POLL_SEC = 0.1


class Sandboxes:
    def __init__(
        self,
        node: SandboxNode,
        templates: TemplateFinder,
        recorder: RunRecorder,
        variables: WritableVariables,
        warm: WarmSandboxes | None,
        storage: StorageQuota,
    ) -> None:
        self._node = node
        self._storage = storage
        self._store, self._runtime = node.store, node.runtime
        self._templates = templates
        self._recorder = recorder
        self._variables = variables
        self._files = NodeFiles(node, recorder)
        self._networks = SandboxNetworks(node)
        self._locks = recorder.locks
        self._starts = SandboxStarts(node, recorder, variables, self._networks, warm)

    @property
    def currency(self) -> str:
        return self._node.prices.currency

    async def create(
        self, new: NewSandbox, *, by: Principal, template: Template | None = None
    ) -> StartFacts:
        """Create a sandbox from a template that the account may use, in one of its projects.
        `template` is the new sandbox's, if it was read already. Raises SandboxNameTakenError,
        SandboxesLimitError."""
        quota = CountQuota(ResourceKind.SANDBOXES, by.account_id, self._node.per_account)
        cause, (sandbox_id, made) = self._node.cause(by.actor), await self._node.new_id()
        used = template or await self._templates.find(by.account_id, new.template_id)
        if made is not None:
            project = await self._store.find_project(by.account_id, made.project_id)
            return StartFacts(made, used, project)

        async def decide() -> tuple[ProjectState | None, Transition[Sandbox]]:
            project = await self._store.find_project(by.account_id, new.project_id)
            await self._node.require_volumes(new, project, by.account_id)
            return project, model.create_sandbox(
                new,
                sandbox_id=sandbox_id,
                account_id=by.account_id,
                template=used,
                project=project,
                quota=await self._store.read_fact(quota),
                cause=cause,
            )

        project, done = await apply_decision(decide, self._apply, busy=SandboxChangedError)
        return StartFacts(done.result, used, project)

    async def create_and_start(
        self,
        new: NewSandbox,
        *,
        by: Principal,
        template: Template | None = None,
        secrets: Sequence[SecretVariable] = (),
        options: RunOptions = DEFAULT_OPTIONS,
        prepare: Callable[[Sandbox], Awaitable[None]] | None = None,
    ) -> Sandbox:
        """A running sandbox with these secret variables, in which `prepare` has finished. If any of
        it fails, or the caller goes away meanwhile, the sandbox is recycled. Raises the errors of
        `create` and `start`."""
        creating = asyncio.ensure_future(self.create(new, template=template, by=by))
        try:
            facts = await asyncio.shield(creating)
            sandbox_id = facts.sandbox.sandbox_id
            if facts.sandbox.status is Status.RUNNING:
                return facts.sandbox  # an interrupted call with the same key has started it
            for each in secrets:
                await self._variables.set(
                    *(sandbox_id, each.name, each.value),
                    is_secret=True,
                    by=by,
                    binding=each.binding,
                )
            started = await self.start(sandbox_id, facts=facts, options=options, by=by)
            if prepare is not None:
                await prepare(started)
        except BaseException:
            await asyncio.shield(self._recycle_created(creating, by))
            raise
        return started

    async def _recycle_created(self, creating: Awaitable[StartFacts], by: Principal) -> None:
        """What is being created may exist even if its caller did not wait for it."""
        try:
            facts = await creating
        except SandyardError:
            return  # nothing was created
        await self.recycle(facts.sandbox.sandbox_id, by=by)

    async def get(self, sandbox_id: str, *, account_id: str | None) -> Sandbox:
        """The account's sandbox; any account's with None. SandboxUnknownError."""
        return await self._node.get(sandbox_id, account_id=account_id)

    async def list(self, listing: Listing[SandboxFilter], *, account_id: str) -> Page[Sandbox]:
        return await self._store.page(account_id, listing)

    async def with_costs(self, sandboxes: Sequence[Sandbox]) -> Sequence[PricedSandbox]:
        now, ids = self._node.now(), [each.sandbox_id for each in sandboxes]
        costs = {each: Decimal(0) for each in ids} | dict(await self._store.costs(ids, now=now))
        return [PricedSandbox(each, costs[each.sandbox_id], self.currency) for each in sandboxes]

    async def change(self, sandbox_id: str, changes: Changes, *, by: Principal) -> Sandbox:
        cause = self._node.cause(by.actor)

        async def decide() -> tuple[Sandbox, Transition[Sandbox] | None]:
            sandbox = await self.get(sandbox_id, account_id=by.account_id)
            self._networks.require_here(sandbox, changes)
            target = changes.values.get("project_id", sandbox.project_id)
            return sandbox, model.update_sandbox(
                sandbox,
                changes,
                template=await self._templates.find(by.account_id, sandbox.template_id),
                project=await self._store.find_project(by.account_id, sandbox.project_id),
                target=await self._store.find_project(by.account_id, target),
                cause=cause,
            )

        async with self._locks.of(sandbox_id):
            before, made = await apply_decision(decide, self._apply, busy=SandboxChangedError)
            await self._networks.enforce(before, changes)
        return before if made is None else made.result

    async def egress_report(self, sandbox_id: str, *, account_id: str) -> EgressReport:
        sandbox = await self._node.get_started(sandbox_id, account_id=account_id)
        return await self._networks.report(sandbox)

    async def start(
        self,
        sandbox_id: str,
        *,
        by: Principal,
        facts: StartFacts | None = None,
        options: RunOptions = DEFAULT_OPTIONS,
    ) -> Sandbox:
        """Returns the sandbox, running; or still `starting`, if that takes longer than the wait.
        `facts` are what `create` has just read of it. A program that fails leaves the sandbox
        running.

        Concurrent calls start one machine. Raises QuotaExceededError, or what kept the machine from
        starting; then the sandbox is `stopped`, with the reason. Raises SandboxElsewhereError if
        another node runs it, or has its files.
        """
        async with self._locks.of(by.account_id):  # its starts share one quota
            sandbox = await self._begin_start(sandbox_id, by, facts, options)
        return await self._starts.wait(sandbox)

    async def stop(
        self,
        sandbox_id: str,
        *,
        by: Principal,
        has_memory: bool | None = None,
        ends_access: bool = True,
    ) -> Sandbox:
        """Stop it with a snapshot of its files, and of its processes if `has_memory`; by default if
        it keeps them and its isolation can. Its access tokens end first, unless `ends_access` is
        False. No effect if it does not run. Raises MemoryNotKeptError."""
        sandbox = await self.get(sandbox_id, account_id=by.account_id)
        if not sandbox.is_active:
            return sandbox
        self._node.require_here(sandbox)
        if ends_access:
            sandbox = await self._end_access(sandbox_id, by)
        is_kept = sandbox.has_memory_to_keep if has_memory is None else has_memory
        await self.end(sandbox, actor=by.actor, has_memory=is_kept)
        return await self.get(sandbox_id, account_id=by.account_id)

    async def end_for_admin(self, sandbox_id: str, *, reason: str, by: Principal) -> Sandbox:
        """End any account's sandbox, for an admin; requests do not wake it again, and its access
        tokens end. On this node, it is stopped and its files are stored. On a silent node, it
        counts as ended when it was last seen, or at its deadline if that was before, and what that
        node may have of it is no longer waited for. Raises SandboxElsewhereError if that node is
        not silent."""
        sandbox = await self.get(sandbox_id, account_id=None)
        end_reason = f"ended by an admin: {reason}"
        if sandbox.node != self._node.name:
            await self._recorder.release(
                sandbox_id,
                snapshot_node=await self._files.holder(sandbox),
                reason=end_reason,
                actor=by.actor,
            )
        sandbox = await self._end_access(sandbox_id, by, stops_waking=True)
        if sandbox.is_active and sandbox.node == self._node.name:
            await self.end(sandbox, actor=by.actor, reason=end_reason)
        return await self.get(sandbox_id, account_id=None)

    async def _end_access(
        self, sandbox_id: str, by: Principal, *, stops_waking: bool = False
    ) -> Sandbox:
        async def decide() -> tuple[Sandbox, Transition[Sandbox] | None]:
            sandbox = await self.get(sandbox_id, account_id=None)
            cause = self._node.cause(by.actor)
            return sandbox, model.end_access(sandbox, cause, stops_waking=stops_waking)

        async with self._locks.of(sandbox_id):
            before, made = await apply_decision(decide, self._apply, busy=SandboxChangedError)
        return before if made is None else made.result

    async def recycle(self, sandbox_id: str, *, by: Principal) -> Sandbox:
        """Stop it and delete it permanently, with its files; its usage and bills stay."""

        async def decide() -> Transitions | None:
            sandbox = await self.get(sandbox_id, account_id=by.account_id)
            if sandbox.is_active:
                self._node.require_here(sandbox)
                await self._request_recycling(sandbox_id, by)
                sandbox = await self.get(sandbox_id, account_id=by.account_id)
                await self.end(sandbox, actor=by.actor)
                sandbox = await self.get(sandbox_id, account_id=by.account_id)
            return recycle_sandbox(sandbox, self._node.accounting(self._node.cause(by.actor)))

        made = await apply_decision(
            decide, lambda made: self._store.apply(*made), busy=SandboxChangedError
        )
        if made is None:
            return await self.get(sandbox_id, account_id=by.account_id)
        recycled: Transition[Sandbox] = made[0]
        if recycled.before is not None:
            await self._forget(recycled.before)
        return recycled.result

    async def _request_recycling(self, sandbox_id: str, by: Principal) -> None:
        """Recorded before its program ends, so that a job recycles it if this call fails."""

        async def decide() -> tuple[Transition[Sandbox] | None]:
            sandbox = await self.get(sandbox_id, account_id=by.account_id)
            return (request_recycling(sandbox, self._node.cause(by.actor)),)

        async with self._locks.of(sandbox_id):
            await apply_decision(decide, self._apply, busy=SandboxChangedError)

    async def end(
        self,
        sandbox: Sandbox,
        *,
        actor: str,
        reason: str | None = None,
        has_memory: bool = False,
    ) -> None:
        """End its program and record that; `reason` is why, if its owner did not request it. With
        `has_memory` its processes are kept: MemoryNotKeptError if they can't be."""
        end = partial(self.end, actor=actor, reason=reason, has_memory=has_memory)
        try:
            ended = await self._runtime.stop(run_id_of(sandbox), has_memory=has_memory)
        except RunNotFoundError:
            if task := self._starts.find(sandbox.sandbox_id):  # it is about to exist
                await asyncio.sleep(_POLL_SEC)
                if not task.done():
                    return await end(sandbox)
            if not await self._recorder.record_lost(sandbox, actor=actor):
                now = await self.get(sandbox.sandbox_id, account_id=None)
                was_started = (now.attempt, now.status) == (sandbox.attempt, Status.RUNNING)
                if was_started and sandbox.status is Status.STARTING:
                    await end(now)
        else:
            await self._recorder.record_ended(sandbox, ended, actor=actor, reason=reason)

    async def close(self) -> None:
        await self._starts.close()

    async def _begin_start(
        self,
        sandbox_id: str,
        by: Principal,
        known: StartFacts | None,
        options: RunOptions,
    ) -> Sandbox:
        async def decide() -> tuple[StartFacts, Transition[Sandbox] | None]:
            nonlocal known
            facts = known or await self._read_facts(sandbox_id, by.account_id)
            known = None  # a second decision reads again
            sandbox = facts.sandbox
            approved = model.approve_start(facts, await self._check_quota(sandbox))
            if approved is None:
                self._node.require_here(sandbox)
                return facts, None
            approved = await self._node.with_volumes(approved)
            if await self._files.recover(sandbox, actor=by.actor):
                return await decide()
            await self._files.require(sandbox)
            await self._runtime.check(isolation_of(sandbox, facts.template))
            # The time is read last: a start dated before a slow check would be taken for lost.
            cause = self._node.cause(by.actor)
            return facts, approved.begin(node=self._node.name, cause=cause)

        facts, begun = await apply_decision(decide, self._apply, busy=SandboxChangedError)
        if begun is not None:
            self._starts.begin(
                facts.sandbox,
                begun.result.attempt,
                facts.template,
                options,
                actor=by.actor,
            )
        return facts.sandbox

    async def _read_facts(self, sandbox_id: str, account_id: str) -> StartFacts:
        sandbox = await self.get(sandbox_id, account_id=account_id)
        return StartFacts(
            sandbox,
            await self._templates.find(account_id, sandbox.template_id),
            await self._store.find_project(account_id, sandbox.project_id),
        )

    async def _check_quota(self, sandbox: Sandbox) -> QuotaCheck:
        return await self._store.check_quota(
            QuotaRequest(
                account_id=sandbox.owner_account_id,
                cpu=sandbox.cpu_spec,
                memory_gb=sandbox.memory_spec,
                quota=self._node.quota,
                storage_gb=self._node.storage_bytes / GIGABYTE,
                stored_elsewhere_gb=await self._storage.elsewhere_gb(sandbox.owner_account_id),
            )
        )

    async def _apply(self, decided: tuple[Any, ...]) -> bool:
        """The last is the transition, or None."""
        transition = decided[-1]
        return transition is None or await self._store.apply(transition)

    async def _forget(self, sandbox: Sandbox) -> None:
        with retried_later("recycle", sandbox.sandbox_id):
            await self._runtime.forget(run_id_of(sandbox))
            if sandbox.latest_snapshot_id is not None:
                await self._runtime.delete_snapshot(sandbox.latest_snapshot_id)
            if (archive_id := sandbox.archive_id) and not await self._store.referenced_archives(
                [archive_id]
            ):
                await self._runtime.delete_archive(archive_id)

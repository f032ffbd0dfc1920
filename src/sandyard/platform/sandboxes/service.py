"""Use cases of an account's sandboxes. The runtime has the actual state."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from sandyard.kit.changes.transitions import Cause, Transition, apply_decision
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.ids import is_resource_id
from sandyard.kit.node import require_here
from sandyard.kit.paging import Page
from sandyard.platform.access.principal import Principal
from sandyard.platform.listings.model import Listing
from sandyard.platform.quotas.model import (
    CountQuota,
    QuotaCheck,
    QuotaRequest,
    ResourceKind,
    Resources,
)
from sandyard.platform.sandboxes.errors import (
    NeverStartedError,
    SandboxChangedError,
    SandboxElsewhereError,
    SandboxUnknownError,
)
from sandyard.platform.sandboxes.ids import SandboxIds
from sandyard.platform.sandboxes.model import (
    Changes,
    NewSandbox,
    PricedSandbox,
    ProjectState,
    Sandbox,
    SandboxFilter,
    StartFacts,
    Status,
    approve_start,
    create_sandbox,
    update_sandbox,
)
from sandyard.platform.sandboxes.network.enforcement import SandboxNetworks
from sandyard.platform.sandboxes.ports import (
    SandboxStore,
    SandboxVariables,
    TemplateFinder,
)
from sandyard.platform.sandboxes.retried_later import retried_later
from sandyard.platform.sandboxes.runs.model import Transitions, recycle_sandbox
from sandyard.platform.sandboxes.runs.node_files import NodeFiles
from sandyard.platform.sandboxes.runs.recorder import RunRecorder, run_id_of
from sandyard.platform.sandboxes.runs.starts import SandboxStarts
from sandyard.platform.sandboxes.runs.warm import WarmSandboxes
from sandyard.platform.templates.model import Template
from sandyard.platform.usage.model import PriceList
from sandyard.runtime.errors import RunNotFoundError
from sandyard.runtime.network_model import EgressReport
from sandyard.runtime.ports import Runtime

_POLL_SEC = 0.1


@dataclass(frozen=True, slots=True)
class SandboxPolicy:
    """Limits of one sandbox and one account, and how long to wait for a start."""

    quota: Resources
    per_account: int
    """The maximum of sandboxes of an account, running or not."""
    prices: PriceList
    node: str
    processes: int
    storage_bytes: int
    silent_for: timedelta
    """After how long without a heartbeat a node counts as silent."""
    start_wait_sec: float = 60


class Sandboxes:
    def __init__(
        self,
        store: SandboxStore,
        templates: TemplateFinder,
        runtime: Runtime,
        recorder: RunRecorder,
        variables: SandboxVariables,
        *,
        clock: Clock,
        ids: SandboxIds,
        policy: SandboxPolicy,
        warm: WarmSandboxes | None = None,
    ) -> None:
        self._store = store
        self._templates = templates
        self._runtime = runtime
        self._recorder = recorder
        self._files = NodeFiles(runtime, recorder, node=policy.node)
        self._networks = SandboxNetworks(runtime, node=policy.node)
        self._clock = clock
        self._locks = recorder.locks
        self._ids = ids
        self._policy = policy
        self._starts = SandboxStarts(
            *(store, runtime, recorder, variables, self._networks),
            processes=policy.processes,
            storage_bytes=policy.storage_bytes,
            warm=warm,
        )

    @property
    def currency(self) -> str:
        return self._policy.prices.currency

    async def create(
        self, new: NewSandbox, *, by: Principal, template: Template | None = None
    ) -> StartFacts:
        """Create a sandbox from a template that the account may use, in one of its projects.
        `template` is the new sandbox's, if it was read already. Raises SandboxNameTakenError,
        SandboxesLimitError."""
        quota = CountQuota(ResourceKind.SANDBOXES, by.account_id, self._policy.per_account)
        cause, sandbox_id = Cause.by(by.actor, self._clock), self._ids.sandbox()
        used = template or await self._templates.find_template(by.account_id, new.template_id)

        async def decide() -> tuple[ProjectState | None, Transition[Sandbox]]:
            project = await self._store.find_project(by.account_id, new.project_id)
            return project, create_sandbox(
                new,
                sandbox_id=sandbox_id,
                account_id=by.account_id,
                template=used,
                project=project,
                quota=await self._store.read_count_quota(quota),
                cause=cause,
            )

        project, made = await apply_decision(decide, self._apply, busy=SandboxChangedError)
        return StartFacts(made.result, used, project)

    async def get(self, sandbox_id: str, *, account_id: str | None) -> Sandbox:
        """The account's sandbox; any account's with None. SandboxUnknownError."""
        is_id = is_resource_id("sbx", sandbox_id)
        found = await self._store.find(sandbox_id, account_id=account_id) if is_id else None
        if found is None:
            raise SandboxUnknownError
        return found

    async def list(self, listing: Listing[SandboxFilter], *, account_id: str) -> Page[Sandbox]:
        return await self._store.page(account_id, listing)

    async def with_costs(self, sandboxes: Sequence[Sandbox]) -> Sequence[PricedSandbox]:
        """Each with its cost so far."""
        ids = [each.sandbox_id for each in sandboxes]
        costs = await self._store.costs(ids, now=utc_time(self._clock.now()))
        return [
            PricedSandbox(each, costs.get(each.sandbox_id, Decimal(0)), self.currency)
            for each in sandboxes
        ]

    async def change(self, sandbox_id: str, changes: Changes, *, by: Principal) -> Sandbox:
        cause = Cause.by(by.actor, self._clock)

        async def decide() -> tuple[Sandbox, Transition[Sandbox] | None]:
            sandbox = await self.get(sandbox_id, account_id=by.account_id)
            self._networks.require_here(sandbox, changes)
            target = changes.values.get("project_id", sandbox.project_id)
            return sandbox, update_sandbox(
                sandbox,
                changes,
                template=await self._templates.find_template(by.account_id, sandbox.template_id),
                project=await self._store.find_project(by.account_id, sandbox.project_id),
                target=await self._store.find_project(by.account_id, target),
                cause=cause,
            )

        async with self._locks.of(sandbox_id):
            before, made = await apply_decision(decide, self._apply, busy=SandboxChangedError)
            await self._networks.enforce(before, changes)
        return before if made is None else made.result

    async def egress_report(self, sandbox_id: str, *, account_id: str) -> EgressReport:
        """The outgoing traffic and refusals of its last run."""
        return await self._networks.report(await self._with_logs(sandbox_id, account_id))

    async def start(
        self, sandbox_id: str, *, by: Principal, facts: StartFacts | None = None
    ) -> Sandbox:
        """Returns the sandbox, running; or still `starting`, if that takes longer than the wait.
        `facts` are what `create` has just read of it.

        Concurrent calls start one program. Raises QuotaExceededError, or what kept the program from
        listening; then the sandbox is `stopped`, with the reason. Raises SandboxElsewhereError if
        another node runs it, or has its files.
        """
        async with self._locks.of(by.account_id):  # its starts share one quota
            sandbox = await self._begin_start(sandbox_id, by, facts)
        return await self._until_started(sandbox)

    async def stop(self, sandbox_id: str, *, by: Principal) -> Sandbox:
        """Stop it with a snapshot of its files; no effect if it does not run."""
        sandbox = await self.get(sandbox_id, account_id=by.account_id)
        if not sandbox.is_active:
            return sandbox
        self._require_here(sandbox)
        await self.end(sandbox, actor=by.actor)
        return await self.get(sandbox_id, account_id=by.account_id)

    async def end_for_admin(self, sandbox_id: str, *, reason: str, by: Principal) -> Sandbox:
        """End any account's sandbox, for an admin. On this node, it is stopped and its files are
        stored. On a silent node, it counts as ended when it was last seen, or at its deadline if
        that was before, and what that node may have of it is no longer waited for. Raises
        SandboxElsewhereError if that node is not silent."""
        sandbox = await self.get(sandbox_id, account_id=None)
        end_reason = f"ended by an admin: {reason}"
        if sandbox.node != self._policy.node:
            await self._recorder.release(
                sandbox_id,
                snapshot_node=await self._files.holder(sandbox),
                silent_for=self._policy.silent_for,
                reason=end_reason,
                actor=by.actor,
            )
        elif sandbox.is_active:
            await self.end(sandbox, actor=by.actor, reason=end_reason)
        return await self.get(sandbox_id, account_id=None)

    async def recycle(self, sandbox_id: str, *, by: Principal) -> Sandbox:
        """Stop it and delete it permanently, with its files; its usage and bills stay."""

        async def decide() -> Transitions | None:
            sandbox = await self.get(sandbox_id, account_id=by.account_id)
            if sandbox.is_active:
                self._require_here(sandbox)
                await self.end(sandbox, actor=by.actor)
                sandbox = await self.get(sandbox_id, account_id=by.account_id)
            return recycle_sandbox(
                sandbox,
                ids=self._ids.new(),
                prices=self._policy.prices,
                cause=Cause.by(by.actor, self._clock),
            )

        made = await apply_decision(decide, self._apply_all, busy=SandboxChangedError)
        if made is None:
            return await self.get(sandbox_id, account_id=by.account_id)
        recycled: Transition[Sandbox] = made[0]
        if recycled.before is not None:
            await self._forget(recycled.before)
        return recycled.result

    async def tail_logs(self, sandbox_id: str, *, account_id: str, lines: int) -> Sequence[str]:
        sandbox = await self._with_logs(sandbox_id, account_id)
        try:
            return await self._runtime.tail_logs(run_id_of(sandbox), lines=lines)
        except RunNotFoundError:
            return []

    async def follow_logs(
        self, sandbox_id: str, *, account_id: str, lines: int
    ) -> AsyncIterator[str]:
        """The last lines and each new one, until the program has ended."""
        sandbox = await self._with_logs(sandbox_id, account_id)
        return _until_forgotten(self._runtime.follow_logs(run_id_of(sandbox), lines=lines))

    async def end(self, sandbox: Sandbox, *, actor: str, reason: str | None = None) -> None:
        """End its program and record that; `reason` is why, if its owner did not request it."""
        try:
            ended = await self._runtime.stop(run_id_of(sandbox))
        except RunNotFoundError:
            if task := self._starts.find(sandbox.sandbox_id):  # it is about to exist
                await asyncio.sleep(_POLL_SEC)
                if not task.done():
                    return await self.end(sandbox, actor=actor, reason=reason)
            await self._recorder.record_lost(sandbox, actor=actor)
        else:
            await self._recorder.record_ended(sandbox, ended, actor=actor, reason=reason)

    async def close(self) -> None:
        """Drop the starts in progress; the next server continues them."""
        await self._starts.close()

    async def _begin_start(
        self, sandbox_id: str, by: Principal, known: StartFacts | None
    ) -> Sandbox:
        async def decide() -> tuple[StartFacts, Transition[Sandbox] | None]:
            nonlocal known
            facts = known or await self._read_facts(sandbox_id, by.account_id)
            known = None  # a second decision reads again
            sandbox = facts.sandbox
            approved = approve_start(facts, await self._check_quota(sandbox))
            if approved is None:
                self._require_here(sandbox)
                return facts, None
            if await self._files.recover(sandbox, actor=by.actor):
                return await decide()
            await self._files.require(sandbox)
            await self._runtime.check()
            # The time is read last: a start dated before a slow check would be taken for lost.
            cause = Cause.by(by.actor, self._clock)
            return facts, approved.begin(node=self._policy.node, cause=cause)

        facts, begun = await apply_decision(decide, self._apply, busy=SandboxChangedError)
        if begun is not None:
            attempt = begun.result.attempt
            self._starts.begin(facts.sandbox, attempt, facts.template, actor=by.actor)
        return facts.sandbox

    async def _read_facts(self, sandbox_id: str, account_id: str) -> StartFacts:
        sandbox = await self.get(sandbox_id, account_id=account_id)
        return StartFacts(
            sandbox,
            await self._templates.find_template(account_id, sandbox.template_id),
            await self._store.find_project(account_id, sandbox.project_id),
        )

    async def _check_quota(self, sandbox: Sandbox) -> QuotaCheck:
        return await self._store.check_quota(
            QuotaRequest(
                account_id=sandbox.owner_account_id,
                cpu=sandbox.cpu_spec,
                memory_gb=sandbox.memory_spec,
                quota=self._policy.quota,
            )
        )

    async def _apply(self, decided: tuple[Any, ...]) -> bool:
        """The last is the transition, or None."""
        transition = decided[-1]
        return transition is None or await self._store.apply(transition)

    async def _apply_all(self, transitions: Transitions) -> bool:
        return await self._store.apply(*transitions)

    async def _until_started(self, sandbox: Sandbox) -> Sandbox:
        task = self._starts.find(sandbox.sandbox_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._policy.start_wait_sec):
                if task is not None:
                    await asyncio.shield(task)
                while True:
                    now = await self.get(sandbox.sandbox_id, account_id=sandbox.owner_account_id)
                    if now.status is not Status.STARTING:
                        return now
                    await asyncio.sleep(_POLL_SEC)
        return await self.get(sandbox.sandbox_id, account_id=sandbox.owner_account_id)

    async def _forget(self, sandbox: Sandbox) -> None:
        with retried_later("recycle", sandbox.sandbox_id):
            await self._runtime.forget(run_id_of(sandbox))
            if sandbox.latest_snapshot_id is not None:
                await self._runtime.delete_snapshot(sandbox.latest_snapshot_id)
            if (kept := sandbox.archive_id) and not await self._store.referenced_archives([kept]):
                await self._runtime.delete_archive(kept)

    async def _with_logs(self, sandbox_id: str, account_id: str) -> Sandbox:
        sandbox = await self.get(sandbox_id, account_id=account_id)
        if not sandbox.attempt:
            raise NeverStartedError
        self._require_here(sandbox)
        return sandbox

    def _require_here(self, sandbox: Sandbox) -> None:
        require_here(sandbox.node, node=self._policy.node, error=SandboxElsewhereError)


async def _until_forgotten(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    """A program that the runtime has forgotten has no more lines."""
    with suppress(RunNotFoundError):
        async for line in lines:
            yield line

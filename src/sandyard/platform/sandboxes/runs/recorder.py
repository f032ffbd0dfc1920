"""Records the runtime's reports of runs in the sandbox and its usage."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from sandyard.kit.changes.transitions import apply_decision
from sandyard.kit.clock import utc_time
from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.kit.errors import SandyardError
from sandyard.platform.sandboxes.errors import FilesNotStoredError, SandboxChangedError
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.node import SandboxNode
from sandyard.platform.sandboxes.retried_later import retried_later
from sandyard.platform.sandboxes.runs import end_model, lost_model, model, program_model
from sandyard.platform.sandboxes.runs.end_model import SYSTEM, End, StoredSnapshot
from sandyard.platform.sandboxes.runs.files_model import store_files
from sandyard.platform.sandboxes.runs.model import Started, Transitions
from sandyard.platform.sandboxes.runs.program_model import SHOWN_LINES
from sandyard.platform.usage.model import Usage
from sandyard.runtime.errors import RunNotFoundError
from sandyard.runtime.model import Ended, Running

logger = logging.getLogger(__name__)


class RunRecorder:
    def __init__(self, node: SandboxNode) -> None:
        self._node = node
        self._store, self._runtime = node.store, node.runtime
        self.locks = KeyedLocks()
        """By sandbox id, for all changes of sandboxes."""

    async def record_started(
        self, sandbox_id: str, attempt: int, running: Running, *, actor: str
    ) -> Sandbox | None:
        """Record that the attempt runs; returns the sandbox as it was before, None if that is
        already recorded, or it has ended."""
        accounting = self._accounting(actor)
        run = Started(
            attempt,
            self._node.preview_url(running),
            utc_time(running.started_at),
            utc_time(running.deadline_at),
            await self._program_of(running),
            running.isolation,
        )
        return await self._change(
            sandbox_id, lambda sandbox, _: model.record_started(sandbox, run, accounting)
        )

    async def record_ended(
        self,
        sandbox: Sandbox,
        ended: Ended,
        *,
        actor: str,
        reason: str | None = None,
        timeout_sec: float | None = None,
    ) -> bool:
        """Record the end of the sandbox's attempt, once its files are stored; False if it already
        is. `reason` is why it was stopped, if not by its owner. Raises StoreUnavailableError,
        after the timeout too: then it counts as running until a job has stored them."""
        if ended.snapshot is not None and end_model.needs_files(sandbox, ended):
            await self._runtime.store_snapshot(ended.snapshot.id, timeout_sec=timeout_sec)
        retention = self._node.snapshot_retention
        end = end_model.end_of(ended, attempt=sandbox.attempt, reason=reason, retention=retention)
        return await self._record(
            sandbox.sandbox_id, end, end_model.ended_by(ended, recorder=actor)
        )

    async def cap_ended(self, sandbox: Sandbox, ended: Ended, *, actor: str) -> None:
        """For a machine whose end can't be recorded yet, as its files are not stored."""
        decide = partial(lost_model.cap_ended, ended=ended, cause=self._node.cause(actor))
        await self._change(sandbox.sandbox_id, decide)

    async def record_deadline(self, sandbox_id: str, running: Running, *, actor: str) -> None:
        """Record the attempt's new deadline; nothing if it has ended."""
        decide = partial(
            model.move_deadline,
            attempt=int(running.run_id.attempt),
            deadline_at=utc_time(running.deadline_at),
            cause=self._node.cause(actor),
        )
        await self._change(sandbox_id, decide)

    async def record_program(self, sandbox: Sandbox, running: Running, *, actor: str) -> None:
        """Record the state of its program; nothing if it is known, or the run has ended."""
        if program_model.is_recorded(sandbox.program, running.program):
            return
        program = await self._program_of(running)
        if program is None:
            return
        attempt, cause = int(running.run_id.attempt), self._node.cause(actor)

        def decide(sandbox: Sandbox, _: Usage | None) -> Transitions | None:
            return program_model.record_program(
                sandbox, attempt=attempt, program=program, cause=cause
            )

        await self._change(sandbox.sandbox_id, decide)

    async def _program_of(self, running: Running) -> dict[str, Any] | None:
        state = running.program
        if state is None:
            return None
        lines: Sequence[str] = ()
        if state.status == "failed":
            with suppress(RunNotFoundError):
                lines = await self._runtime.tail_logs(running.run_id, lines=SHOWN_LINES)
        return program_model.program_record(state, lines)

    async def record_files(self, sandbox: Sandbox, ended: Ended, *, actor: str) -> None:
        """Record the files that were changed while it does not run, once they are stored. Raises
        SandboxChangedError, FilesNotStoredError, StoreUnavailableError."""
        snapshot = end_model.stored_snapshot(ended, retention=self._node.snapshot_retention)
        if snapshot is None:
            raise FilesNotStoredError(reason=ended.snapshot_error)
        await self._runtime.store_snapshot(snapshot.id)
        accounting, replaces = self._accounting(actor), sandbox.latest_snapshot_id

        def decide(now: Sandbox, _: Usage | None) -> Transitions:
            return store_files(
                now, snapshot, replaces=replaces, node=self._node.name, accounting=accounting
            )

        await self._change(sandbox.sandbox_id, decide)
        await self._delete_replaced(sandbox.sandbox_id, replaces, snapshot)

    async def record_failed_start(
        self, sandbox_id: str, attempt: int, error: SandyardError
    ) -> bool:
        end = end_model.failed_start(
            attempt, code=error.code, message=error.message, at=self._node.now()
        )
        return await self._record(sandbox_id, end, SYSTEM)

    async def record_lost(self, sandbox: Sandbox, *, actor: str) -> bool:
        """For a sandbox that its node does not know; False if it has been started since it was
        read, or has ended."""
        decide = partial(lost_model.end_lost, asked=sandbox)
        return await self._end_unseen(sandbox.sandbox_id, decide, actor)

    async def record_overdue(self, sandbox: Sandbox, *, actor: str) -> bool:
        """For a sandbox past its deadline whose node is silent; False if that is not so, or its end
        is already recorded."""
        decide = partial(lost_model.end_overdue, silent_for=self._node.silent_for)
        return await self._end_unseen(sandbox.sandbox_id, decide, actor)

    async def release(
        self,
        sandbox_id: str,
        *,
        snapshot_node: str | None,
        reason: str,
        actor: str,
    ) -> bool:
        """For a sandbox whose node is no longer waited for; False if no node has anything of it.
        Raises SandboxElsewhereError if that node is not silent."""
        decide = partial(
            lost_model.release_run,
            reason=reason,
            snapshot_node=snapshot_node,
            silent_for=self._node.silent_for,
        )
        return await self._end_unseen(sandbox_id, decide, actor)

    async def cap_elsewhere(self, node: str) -> int:
        """Count runs on other nodes only up to when they were last seen; returns how many counted
        further. For an engine that no other node writes to: after a restore they report to the
        previous data dir."""
        now, capped = self._node.now(), 0
        for sandbox in await self._store.active_elsewhere(node, unseen_since=now):
            decide = partial(lost_model.cap_unreported, node=node, cause=self._node.cause(SYSTEM))
            capped += await self._change(sandbox.sandbox_id, decide) is not None
        return capped

    async def recover(self, sandbox: Sandbox, ended: Ended, *, actor: str) -> bool:
        """Store the files of a run that was recorded as ended without them; False if they are
        known, or not needed."""
        snapshot = end_model.stored_snapshot(ended, retention=self._node.snapshot_retention)
        accounting = self._accounting(actor)
        if snapshot is None:
            return False

        def decide(sandbox: Sandbox, _: Usage | None = None) -> Transitions | None:
            return lost_model.recover_snapshot(
                sandbox,
                snapshot=snapshot,
                run=lost_model.past_run_of(ended),
                taken_at=utc_time(ended.ended_at),
                node=self._node.name,
                accounting=accounting,
            )

        if decide(sandbox) is None or not await self._runtime.has_snapshot(snapshot.id):
            return False
        await self._runtime.store_snapshot(snapshot.id)
        return await self._change(sandbox.sandbox_id, decide) is not None

    def _accounting(self, actor: str) -> model.Accounting:
        return self._node.accounting(self._node.cause(actor))

    async def _end_unseen(
        self, sandbox_id: str, decide: Callable[..., Transitions | None], actor: str
    ) -> bool:
        accounting = self._accounting(actor)
        before = await self._change(sandbox_id, partial(decide, accounting=accounting))
        if before is not None:
            logger.warning(
                "a sandbox was ended because its node is silent",
                extra={"action": "end", "sandbox_id": sandbox_id, "node": before.node},
            )
        return before is not None

    async def _record(self, sandbox_id: str, end: End, actor: str) -> bool:
        decide = partial(model.record_end, end=end, accounting=self._accounting(actor))
        before = await self._change(sandbox_id, decide)
        if before is None:
            return False
        logger.info(
            "sandbox ended",
            extra={
                "action": "end",
                "sandbox_id": sandbox_id,
                "outcome": end.status,
                "reason": end.reason,
            },
        )
        await self._delete_replaced(sandbox_id, before.latest_snapshot_id, end.snapshot)
        return True

    async def _change(
        self, sandbox_id: str, decide: Callable[[Sandbox, Usage | None], Transitions | None]
    ) -> Sandbox | None:
        """Decide and apply, with retries on a conflict; returns the sandbox as it was before, None
        if there was nothing to change."""

        async def decide_now() -> tuple[Sandbox, Transitions] | None:
            found = await self._store.find_with_usage(sandbox_id)
            transitions = decide(*found) if found is not None else None
            return (found[0], transitions) if found and transitions is not None else None

        async with self.locks.of(sandbox_id):
            made = await apply_decision(
                decide_now, lambda made: self._store.apply(*made[1]), busy=SandboxChangedError
            )
        return None if made is None else made[0]

    async def _delete_replaced(
        self, sandbox_id: str, snapshot_id: str | None, by: StoredSnapshot | None
    ) -> None:
        if snapshot_id is None or by is None or by.id == snapshot_id:
            return
        with retried_later("snapshots", sandbox_id):
            await self._runtime.delete_snapshot(snapshot_id)

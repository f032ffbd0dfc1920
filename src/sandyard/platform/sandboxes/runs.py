"""Records what the runtime says of runs: the sandbox's state follows, and its usage with it."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import SandyardError
from sandyard.kit.events import actor as actor_of
from sandyard.kit.keyed_locks import KeyedLocks
from sandyard.kit.transitions import Cause, Tries
from sandyard.platform.sandboxes.errors import SandboxChangedError
from sandyard.platform.sandboxes.ids import SandboxIds
from sandyard.platform.sandboxes.lost_model import (
    PastRun,
    cap_unreported,
    end_lost,
    end_overdue,
    give_up_run,
    recover_snapshot,
)
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.ports import SandboxStore
from sandyard.platform.sandboxes.run_model import (
    End,
    KeptSnapshot,
    Started,
    Transitions,
    record_end,
    record_started,
)
from sandyard.platform.usage.model import PriceList, Usage
from sandyard.runtime.model import Ended, RunId, Running
from sandyard.runtime.ports import Runtime

logger = logging.getLogger(__name__)

SYSTEM = actor_of("system")

_REASONS = {
    "stopped": "stopped by its owner",
    "timeout": "its time was over",
    "out_of_memory": "it took more memory than it may have",
    "out_of_storage": "it took more storage than it may have",
    "killed": "its processes were killed",
}
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class RunPolicy:
    prices: PriceList
    snapshots_kept_for: timedelta


class RunRecorder:
    def __init__(
        self,
        store: SandboxStore,
        runtime: Runtime,
        *,
        clock: Clock,
        ids: SandboxIds,
        policy: RunPolicy,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._clock = clock
        self.locks = KeyedLocks()
        """By sandbox id, for all who change sandboxes."""
        self._ids = ids
        self._policy = policy

    async def record_started(
        self, sandbox_id: str, attempt: int, running: Running, *, actor: str
    ) -> bool:
        """That the attempt runs; False if that was recorded before, or it has ended."""
        cause = Cause.by(actor, self._clock)
        run = Started(
            attempt, running.url, utc_time(running.started_at), utc_time(running.deadline_at)
        )
        before = await self._settle(
            sandbox_id,
            lambda sandbox, _: record_started(
                sandbox, run, ids=self._ids.new(), prices=self._policy.prices, cause=cause
            ),
        )
        return before is not None

    async def record_ended(
        self, sandbox: Sandbox, ended: Ended, *, actor: str, reason: str | None = None
    ) -> bool:
        """The end of the sandbox's attempt; False if it was recorded before.

        `reason` is why it was stopped, if not by its owner. The actor of what ended by itself is
        `system`, whoever records it.
        """
        was_stopped = ended.reason == "stopped"
        end = End(
            attempt=sandbox.attempt,
            status=Status.TIMEOUT if ended.reason == "timeout" else Status.STOPPED,
            reason=reason if reason and was_stopped else reason_of(ended),
            ended_at=utc_time(ended.ended_at),
            snapshot=self._kept(ended),
            started_at=None if ended.started_at is None else utc_time(ended.started_at),
            has_run=ended.has_listened,
            leaves_files=ended.has_listened,
            by_owner=was_stopped and not reason,
        )
        return await self._record(sandbox.sandbox_id, end, actor if was_stopped else SYSTEM)

    async def record_failed_start(
        self, sandbox_id: str, attempt: int, error: SandyardError
    ) -> bool:
        reason = f"{error.code}: {error.message}"[:_LONGEST_REASON]
        now = utc_time(self._clock.now())
        end = End(attempt, Status.STOPPED, reason, now, has_run=False, leaves_files=False)
        return await self._record(sandbox_id, end, SYSTEM)

    async def record_lost(self, sandbox: Sandbox, *, actor: str) -> bool:
        """For one of which the runtime knows nothing any more."""
        return await self._end_unseen(sandbox.sandbox_id, end_lost, actor)

    async def record_overdue(self, sandbox: Sandbox, *, silent_for: timedelta, actor: str) -> bool:
        """For one of another node, which has been silent for this long beyond its deadline;
        False if that is not so, or its end was recorded before."""
        decide = partial(end_overdue, silent_for=silent_for)
        return await self._end_unseen(sandbox.sandbox_id, decide, actor)

    async def give_up(
        self,
        sandbox_id: str,
        *,
        kept_on: str | None,
        silent_for: timedelta,
        reason: str,
        actor: str,
    ) -> bool:
        """For one whose node is not waited for any more; False if no node has anything of it.
        Raises SandboxElsewhereError if that node has not been silent for this long."""
        decide = partial(give_up_run, reason=reason, kept_on=kept_on, silent_for=silent_for)
        return await self._end_unseen(sandbox_id, decide, actor)

    async def cap_elsewhere(self, node: str) -> int:
        """What nodes other than this one run counts up to when it was last seen; returns how many
        of them counted further. For an engine that no other node writes to: after a restore they
        report to the data dir of before."""
        now, capped = utc_time(self._clock.now()), 0
        for sandbox in await self._store.active_elsewhere(node, unseen_since=now):
            cause = Cause.by(SYSTEM, self._clock)
            decide = partial(cap_unreported, node=node, cause=cause)
            capped += await self._settle(sandbox.sandbox_id, decide) is not None
        return capped

    async def recover(self, sandbox: Sandbox, ended: Ended, *, node: str, actor: str) -> bool:
        """Keep the files of a run that was recorded as ended without them; False if they are
        known, or not needed."""
        snapshot, means = self._kept(ended), self._means(actor)
        if snapshot is None:
            return False

        def decide(sandbox: Sandbox, _: Usage | None = None) -> Transitions | None:
            return recover_snapshot(
                sandbox,
                snapshot=snapshot,
                run=past_run_of(ended),
                taken_at=utc_time(ended.ended_at),
                node=node,
                **means,
            )

        if decide(sandbox) is None or not await self._runtime.has_snapshot(snapshot.id):
            return False
        return await self._settle(sandbox.sandbox_id, decide) is not None

    def _means(self, actor: str) -> dict[str, Any]:
        """What decisions about an end are made with."""
        return {
            "ids": self._ids.new(),
            "prices": self._policy.prices,
            "cause": Cause.by(actor, self._clock),
        }

    def _kept(self, ended: Ended) -> KeptSnapshot | None:
        if ended.snapshot is None:
            return None
        expires_at = utc_time(ended.ended_at) + self._policy.snapshots_kept_for
        return KeptSnapshot(ended.snapshot.id, ended.snapshot.size_bytes, expires_at)

    async def _end_unseen(
        self, sandbox_id: str, decide: Callable[..., Transitions | None], actor: str
    ) -> bool:
        """Record an end that no runtime has told."""
        before = await self._settle(sandbox_id, partial(decide, **self._means(actor)))
        if before is not None:
            logger.warning(
                "sandbox ended without word from its node",
                extra={"action": "end", "sandbox_id": sandbox_id, "node": before.node},
            )
        return before is not None

    async def _record(self, sandbox_id: str, end: End, actor: str) -> bool:
        decide = partial(record_end, end=end, **self._means(actor))
        before = await self._settle(sandbox_id, decide)
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
        await self._delete_replaced(before.latest_snapshot_id, end)
        return True

    async def _settle(
        self, sandbox_id: str, decide: Callable[[Sandbox, Usage | None], Transitions | None]
    ) -> Sandbox | None:
        """Decide and apply, again if somebody was faster; the sandbox as it was before, None if
        there was nothing to change."""
        async with self.locks.of(sandbox_id):
            async for _ in Tries():
                found = await self._store.find_with_usage(sandbox_id)
                transitions = decide(*found) if found is not None else None
                if found is None or transitions is None:
                    return None
                if await self._store.apply(*transitions):
                    return found[0]
        raise SandboxChangedError

    async def _delete_replaced(self, snapshot_id: str | None, end: End) -> None:
        if snapshot_id is None or end.snapshot is None or end.snapshot.id == snapshot_id:
            return
        with suppress(SandyardError):  # what is left behind is removed later
            await self._runtime.delete_snapshot(snapshot_id)


def run_id_of(sandbox: Sandbox) -> RunId:
    """Whose program it is that the sandbox's last attempt runs or ran."""
    return RunId("sandbox", sandbox.sandbox_id, str(sandbox.attempt))


def past_run_of(ended: Ended) -> PastRun:
    began_at = ended.started_at
    return PastRun(int(ended.run_id.attempt), None if began_at is None else utc_time(began_at))


def reason_of(ended: Ended) -> str:
    """In words that an owner can act on."""
    match ended.reason:
        case "exited":
            reason = f"its program ended with code {ended.exit_code}"
        case "not_started":
            reason = f"{ended.error_code or 'START_FAILED'}: {ended.message}"
        case other:
            reason = _REASONS[other]
    if ended.snapshot_error:
        reason += f"; its files could not be kept: {ended.snapshot_error}"
    return reason[:_LONGEST_REASON]

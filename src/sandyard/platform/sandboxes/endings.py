"""Ends: what the runtime recorded becomes the sandbox's state; its usage closes."""

import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import SandyardError
from sandyard.kit.ids import IdMaker
from sandyard.platform.notifications.model import Notice, NotificationType
from sandyard.platform.runtime.model import Ended
from sandyard.platform.runtime.ports import Runtime
from sandyard.platform.sandboxes.model import End, Sandbox, Status
from sandyard.platform.sandboxes.ports import SandboxStore
from sandyard.platform.usage.model import PriceList

logger = logging.getLogger(__name__)

_REASONS = {
    "stopped": "stopped by its owner",
    "timeout": "its time was over",
    "out_of_memory": "it took more memory than it may have",
    "out_of_storage": "it took more storage than it may have",
    "killed": "its processes were killed",
}
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class SnapshotPolicy:
    kept_for: timedelta
    prices: PriceList


class Endings:
    def __init__(
        self,
        store: SandboxStore,
        runtime: Runtime,
        *,
        clock: Clock,
        make_usage_id: IdMaker,
        policy: SnapshotPolicy,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._clock = clock
        self._make_usage_id = make_usage_id
        self._policy = policy

    async def record(self, sandbox: Sandbox, ended: Ended, *, because: str | None = None) -> bool:
        """The end of the sandbox's attempt; False if it was recorded before.

        `because` is why it was stopped, if not by its owner.
        """
        ended_at = utc_time(ended.ended_at)
        snapshot = ended.snapshot
        end = End(
            status=Status.TIMEOUT if ended.reason == "timeout" else Status.STOPPED,
            reason=because if because and ended.reason == "stopped" else reason_of(ended),
            ended_at=ended_at,
            snapshot_id=snapshot.id if snapshot else None,
            snapshot_bytes=snapshot.size_bytes if snapshot else None,
            snapshot_expires_at=ended_at + self._policy.kept_for if snapshot else None,
        )
        return await self._record(sandbox, sandbox.attempt, end)

    async def record_failed_start(
        self, sandbox: Sandbox, attempt: int, error: SandyardError
    ) -> bool:
        reason = f"{error.code}: {error.message}"[:_LONGEST_REASON]
        return await self._record(
            sandbox, attempt, End(Status.STOPPED, reason, utc_time(self._clock.now()))
        )

    async def record_lost(self, sandbox: Sandbox) -> bool:
        """For one of which the runtime knows nothing any more."""
        end = End(Status.STOPPED, "lost with its machine's state", utc_time(self._clock.now()))
        return await self._record(sandbox, sandbox.attempt, end)

    def storage_rate(self, sandbox: Sandbox) -> Decimal:
        return self._policy.prices.of_keeping(size_bytes=sandbox.snapshot_bytes or 0)

    async def _record(self, sandbox: Sandbox, attempt: int, end: End) -> bool:
        recorded = await self._store.record_end(
            sandbox.sandbox_id,
            attempt=attempt,
            end=end,
            usage_id=self._make_usage_id(),
            storage_rate=self.storage_rate(sandbox),
            notice=_notice(sandbox, end),
        )
        if recorded:
            logger.info(
                "sandbox ended",
                extra={
                    "action": "end",
                    "sandbox_id": sandbox.sandbox_id,
                    "outcome": end.status,
                    "reason": end.reason,
                },
            )
            replaced = sandbox.latest_snapshot_id
            if end.snapshot_id is not None and replaced not in (None, end.snapshot_id):
                with suppress(SandyardError):  # what is left behind is swept up later
                    await self._runtime.delete_snapshot(replaced)
        return recorded


def reason_of(ended: Ended) -> str:
    """In words that an owner can act on."""
    match ended.reason:
        case "exited":
            reason = f"its program ended with code {ended.exit_code}"
        case "not_started":
            reason = f"{ended.error_code or 'START_FAILED'}: {ended.message}"
        case other:
            reason = _REASONS[other]
    if ended.snapshot_trouble:
        reason += f"; its files could not be kept: {ended.snapshot_trouble}"
    return reason[:_LONGEST_REASON]


def _notice(sandbox: Sandbox, end: End) -> Notice | None:
    """What the owner did not do is told to the owner."""
    if end.reason.startswith(_REASONS["stopped"]):
        return None
    timed_out = end.status is Status.TIMEOUT
    return Notice(
        title=f"{sandbox.name} {'timed out' if timed_out else 'has ended'}",
        message=f"The sandbox {sandbox.name} ended: {end.reason}.",
        type=NotificationType.WARNING if timed_out else NotificationType.ERROR,
        related_entity_type="sandbox",
        related_entity_id=sandbox.sandbox_id,
    )

"""The provider that the pool is bound to, checked before it is called; and the job `pool`, which
reports a low pool and creates missing sandboxes there."""

import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sandyard.broker.pool.errors import RowBusyError
from sandyard.broker.pool.model import Listed, Status
from sandyard.broker.pool.ports import PoolStore, SandboxFilter, pages_of
from sandyard.broker.pool.provider_model import decide_discovery
from sandyard.broker.provider import model
from sandyard.broker.provider.errors import ProviderUnavailableError
from sandyard.broker.provider.model import (
    ProviderBinding,
    decide_first_provider,
    decide_provider_change,
    require_same_provider,
)
from sandyard.broker.provider.ports import Provider
from sandyard.broker.queue.assignment import SandboxAssigner
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, ConflictRetries, Transition, apply_decision
from sandyard.kit.clock import Clock
from sandyard.kit.wired import wired

T = TypeVar("T")
logger = logging.getLogger(__name__)


class PoolProvider:
    """`configured` is the name of the provider that this process calls."""

    def __init__(self, store: PoolStore, *, clock: Clock, configured: str) -> None:
        self._store = store
        self._clock = clock
        self.configured = configured

    async def require(self) -> None:
        """Return if the pool belongs to the configured provider, or bind it if it has none yet;
        otherwise raise ProviderMismatchError."""
        bound = await self._store.find_single(ProviderBinding)
        if bound is None:
            bound = await self._bind_first()
        require_same_provider(bound, self.configured)

    async def _bind_first(self) -> ProviderBinding:
        cause = Cause.by(actor("system"), self._clock)
        first = decide_first_provider(self.configured, cause=cause)
        if await self._store.apply_together(first):
            return first.result
        return await self._store.find_single(ProviderBinding) or first.result

    async def before_change(self) -> str | None:
        """The pool's current provider, if it may change to the configured one. Raises
        ProviderChangeRefusedError if simulated and real sandboxes would be mixed."""
        bound, _ = await self._decide_change()
        return bound.provider if bound else None

    async def change(self) -> str | None:
        """Bind the pool to the configured provider, if allowed; returns the previous one."""
        async for _ in ConflictRetries():
            bound, change = await self._decide_change()
            if change is None or await self._store.apply_together(change):
                return bound.provider if bound else None
        raise RowBusyError

    async def _decide_change(
        self,
    ) -> tuple[ProviderBinding | None, Transition[ProviderBinding] | None]:
        bound = await self._store.find_single(ProviderBinding)
        cause = Cause.by(actor("operator"), self._clock)
        has_rows = await self._has_rows()
        return bound, decide_provider_change(bound, self.configured, has_rows=has_rows, cause=cause)

    def before(self, run: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """Wraps `run` with a check that the pool belongs to this provider."""

        async def checked() -> T:
            await self.require()
            return await run()

        return checked

    async def _has_rows(self) -> bool:
        async for rows in pages_of(self._store, SandboxFilter(), size=1):
            if rows:
                return True
        return False


@dataclass(slots=True)
class PoolReport:
    available: int = 0
    missing: int = 0
    created: int = 0
    adopted: int = 0


@wired
class PoolAutoscaler:
    store: PoolStore
    provider: Provider
    clock: Clock
    policy: model.AutoscalingPolicy
    lab_duration_hours: float
    assigner: SandboxAssigner
    name_prefix: str = "sandyard-"

    async def run(self) -> PoolReport:
        """Report the pool's level, adopt sandboxes whose create response was lost, and create
        missing ones."""
        report = PoolReport()
        counted = await self.store.counts()
        counts = counted.by_status
        report.available = counts[Status.AVAILABLE]
        await self._report_level(report.available)
        await self._adopt_lost(report)
        reservations = await self.store.open_reservations()
        now = int(self.clock.now())
        needed = model.lacking(reservations, now=now, lookahead_sec=self.policy.lookahead_sec)
        report.missing = max(0, self.policy.min_available + needed - report.available)
        total = sum(counts.values()) + report.adopted
        available = report.available + report.adopted
        autoscaler = await self._autoscaler()
        wanted = model.to_create(
            autoscaler, self.policy, available=available, total=total, lacking=needed, now=now
        )
        if wanted and self.provider.can_create:
            if autoscaler.is_counted(counted.counted_at):  # else the next run decides
                await self._create(wanted, report)
        else:
            await self._report_stuck(report.missing)
        return report

    async def _report_level(self, available: int) -> None:
        is_new = await self._change(
            lambda autoscaler, cause: model.decide_level(autoscaler, available, self.policy, cause)
        )
        level = model.level_of(available, self.policy)
        if is_new and level != "ok":
            extra = {"action": "pool", "available": available, "pool_level": level}
            logger.warning("the pool runs low", extra=extra)

    async def _adopt_lost(self, report: PoolReport) -> None:
        """Adopt listed sandboxes with a requested name, even if their create response was lost.
        Names that are not listed after `SETTLE_SEC` count as not created."""
        autoscaler = await self._autoscaler()
        if not autoscaler.names:
            return
        by_name = {each.name: each for each in await self.provider.list_sandboxes()}
        found = [by_name[name] for name in autoscaler.names if name in by_name]
        report.adopted += await self._adopt(found)
        is_settled = int(self.clock.now()) >= autoscaler.asked_at + model.SETTLE_SEC
        known = autoscaler.names if is_settled else [each.name for each in found]
        await self._change(
            lambda autoscaler, cause: model.decide_settled(
                autoscaler or model.Autoscaler(), known, cause
            )
        )

    async def _adopt(self, listed: Sequence[Listed]) -> int:
        cause = Cause.by(actor("job", "pool"), self.clock)
        hours = self.lab_duration_hours
        made = [decide_discovery(each, lab_duration_hours=hours, cause=cause) for each in listed]
        return sum(await self.assigner.apply(made))

    async def _create(self, wanted: int, report: PoolReport) -> None:
        names = [f"{self.name_prefix}{secrets.token_hex(6)}" for _ in range(wanted)]
        if not await self._change(
            lambda autoscaler, cause: model.decide_asked(autoscaler, names, cause)
        ):
            return
        done: list[str] = []
        failure: str | None = None
        try:
            for name in names:
                report.created += await self._adopt([await self.provider.create_sandbox(name)])
                done.append(name)
        except ProviderUnavailableError as error:
            failure = error.reason or error.message
            # The rest was never requested; the outcome of this one is unknown.
            done = [each for each in names if each != names[len(done)]]
            logger.warning(
                "the provider did not create a sandbox",
                extra={"action": "pool", "reason": failure},
            )
        await self._change(
            lambda autoscaler, cause: model.decide_answered(
                autoscaler or model.Autoscaler(), done, cause, failure=failure, policy=self.policy
            )
        )

    async def _report_stuck(self, missing: int) -> None:
        obstacle = self._obstacle()
        is_new = await self._change(
            lambda autoscaler, cause: model.decide_stuck(autoscaler, missing, obstacle, cause)
        )
        if is_new and missing:
            extra = {"action": "pool", "missing": missing, "reason": obstacle}
            logger.error("the pool lacks sandboxes, and none will be created", extra=extra)

    def _obstacle(self) -> str | None:
        """Why no sandbox can ever be created; None if nothing prevents it."""
        if not self.provider.can_create:
            return "the provider can't create sandboxes"
        return None if self.policy.per_hour else "POOL_CREATE_PER_HOUR allows no creation"

    def around_sync(self, run: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """Wraps `run`; events report when it keeps failing and when it works again."""

        async def watched() -> T:
            try:
                done = await run()
            except ProviderUnavailableError as error:
                await self._note_sync(error.reason or error.message)
                raise
            await self._note_sync(None)
            return done

        return watched

    async def _note_sync(self, failure: str | None) -> None:
        await self._change(lambda autoscaler, cause: model.decide_sync(autoscaler, failure, cause))

    async def _autoscaler(self) -> model.Autoscaler:
        return await self.store.find_single(model.Autoscaler) or model.Autoscaler()

    async def _change(
        self,
        decide: Callable[[model.Autoscaler | None, Cause], Transition[model.Autoscaler] | None],
    ) -> bool:
        async def decide_now() -> Transition[model.Autoscaler] | None:
            cause = Cause.by(actor("job", "pool"), self.clock)
            return decide(await self.store.find_single(model.Autoscaler), cause)

        change = await apply_decision(decide_now, self.store.apply_together, busy=RowBusyError)
        return change is not None

"""A provider of previews like E2B, simulated: what it has outlives every fault, its answers do
not."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from sandyard.kit.clock import utc_time
from sandyard.kit.ids import holder_id
from sandyard.previews.errors import (
    ProviderRateLimitedError,
    ProviderTimeoutError,
    ProviderTroubleError,
    SandboxGoneError,
)
from sandyard.previews.ports import Application, PreviewSandbox
from tests.simulation.loop import EPOCH, Process
from tests.simulation.network import Network

T = TypeVar("T")

_LATEST_SEC = 8.0
"""Until then a create that was sent has made its sandbox, or never will."""


@dataclass(slots=True)
class PreviewLife:
    """A preview's sandbox as it really was."""

    sandbox_id: str
    project_id: str
    attempt: str
    started_at: float
    ends_at: float
    listed_at: float

    def is_running(self, at: float) -> bool:
        return self.started_at <= at < self.ends_at


@dataclass(slots=True)
class PreviewCloud:
    rng: random.Random
    lives: dict[str, PreviewLife] = field(default_factory=dict)
    made: int = 0

    def now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()

    def order(self, project_id: str, attempt: str, ttl: timedelta) -> float:
        """It is made whoever waits for it; returns in how many seconds."""
        seconds = self.rng.uniform(0.1, 1.0)
        if self.rng.random() < 0.05:
            seconds = self.rng.uniform(2, _LATEST_SEC)
        loop = asyncio.get_running_loop()
        loop.call_later(seconds, self._make, project_id, attempt, ttl.total_seconds())
        return seconds

    def _make(self, project_id: str, attempt: str, ttl_sec: float) -> None:
        self.made += 1
        life_sec = self.rng.uniform(1, ttl_sec) if self.rng.random() < 0.2 else ttl_sec
        now, sandbox_id = self.now(), f"cloud-{self.made}"
        lag_sec = self.rng.choice([0.0, 0.0, 0.5, 2.0])
        self.lives[sandbox_id] = PreviewLife(
            sandbox_id, project_id, attempt, now, now + life_sec, now + lag_sec
        )

    def find(self, project_id: str, attempt: str, *, is_listed: bool) -> PreviewLife | None:
        now = self.now()
        for life in self.lives.values():
            is_it = (life.project_id, life.attempt) == (project_id, attempt)
            if is_it and life.is_running(now) and (life.listed_at <= now or not is_listed):
                return life
        return None

    def get(self, sandbox_id: str) -> PreviewLife:
        life = self.lives.get(sandbox_id)
        if life is None or not life.is_running(self.now()):
            raise SandboxGoneError
        return life

    def kill(self, sandbox_id: str) -> None:
        life = self.lives.get(sandbox_id)
        if life is not None and life.is_running(self.now()):
            life.ends_at = self.now()


class SimulatedPreviewProvider:
    """One server's view of it."""

    def __init__(self, cloud: PreviewCloud, network: Network, process: Process) -> None:
        self._cloud = cloud
        self._network = network
        self._process = process

    def make_attempt_id(self) -> str:
        return holder_id()

    async def create(
        self, *, project_id: str, attempt: str, files: Mapping[str, bytes], ttl: timedelta
    ) -> PreviewSandbox:
        del files
        seconds = await self._call(lambda: self._cloud.order(project_id, attempt, ttl))
        await self._network.wait(self._process, seconds + 0.01)
        made = self._cloud.find(project_id, attempt, is_listed=False)
        if made is None:
            raise ProviderTimeoutError
        try:
            return await self._call(lambda: _sandbox(made))
        except ProviderTroubleError as error:
            error.made_nothing = False  # as the provider for E2B says: the sandbox exists
            raise

    async def find_attempt(self, *, project_id: str, attempt: str) -> PreviewSandbox | None:
        found = await self._call(lambda: self._cloud.find(project_id, attempt, is_listed=True))
        return None if found is None else _sandbox(found)

    async def get(self, sandbox_id: str) -> PreviewSandbox:
        return _sandbox(await self._call(lambda: self._cloud.get(sandbox_id)))

    async def end_time(self, sandbox_id: str) -> datetime:
        return utc_time((await self._call(lambda: self._cloud.get(sandbox_id))).ends_at)

    async def write_files(
        self, sandbox_id: str, *, written: Mapping[str, bytes], deleted: Collection[str]
    ) -> None:
        del written, deleted
        await self._call(lambda: self._cloud.get(sandbox_id))

    async def application(self, sandbox_id: str) -> Application | None:
        await self._call(lambda: self._cloud.get(sandbox_id))
        return Application("running", "static")

    async def log(self, sandbox_id: str, *, lines: int) -> Sequence[str]:
        await self._call(lambda: self._cloud.get(sandbox_id))
        return ["running"][:lines]

    async def follow_log(self, sandbox_id: str, *, lines: int) -> AsyncIterator[str]:
        for line in await self.log(sandbox_id, lines=lines):
            yield line

    async def kill(self, sandbox_id: str) -> None:
        await self._call(lambda: self._cloud.kill(sandbox_id), may_double=True)

    async def close(self) -> None:
        """Its sandboxes go on."""

    async def _call(self, work: Callable[[], T], *, may_double: bool = False) -> T:
        return await self._network.call(self._process, work, lost=_lost, may_double=may_double)


def _sandbox(life: PreviewLife) -> PreviewSandbox:
    return PreviewSandbox(
        sandbox_id=life.sandbox_id,
        preview_url=f"https://{life.sandbox_id}.invalid",
        start_time=utc_time(life.started_at),
        end_time=utc_time(life.ends_at),
        attempt=life.attempt,
    )


def _lost(reason: str) -> Exception:
    if reason == "throttled":
        return ProviderRateLimitedError(reason=reason)
    return ProviderTimeoutError(reason=reason)

"""What every part looks like to the process that runs it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from fastapi import APIRouter

from sandyard.kit.embedded import EmbeddedDatabase
from sandyard.kit.jobs import Job, JobRunner

Gauges = Mapping[str, tuple[str, float]]
"""What a gauge is called, and what it means and shows."""


class Part(Protocol):
    """One part of Sandyard, wired to its engine."""

    @property
    def name(self) -> str: ...

    @property
    def engine(self) -> str:
        """The engine's name, for people."""
        ...

    @property
    def runner(self) -> JobRunner | None:
        """Runs the part's jobs; None if it has none."""
        ...

    @property
    def schedule(self) -> Sequence[Job[Any]]:
        """The jobs that run by themselves."""
        ...

    @property
    def routers(self) -> Sequence[APIRouter]:
        """The part's endpoints, the busiest first."""
        ...

    async def prepare(self) -> None:
        """Bring an embedded engine to the newest schema and free the jobs of a process that died;
        raise UnavailableError if a shared one is not fit for use."""
        ...

    async def start(self) -> None:
        """Begin what only a process that serves has to do; works without the engine."""
        ...

    async def check(self) -> None:
        """Return if the engine answers and is fit for use; else raise UnavailableError."""
        ...

    async def check_writes(self) -> None:
        """Return if the engine takes writes; else raise UnavailableError."""
        ...

    async def gauges(self) -> Gauges:
        """What `/metrics` shows of the part, read now."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WiredPart(ABC):
    """A `Part` on an engine of its own, but for its check and what it has to close."""

    name: ClassVar[str]
    engine: str
    routers: Sequence[APIRouter]
    runner: JobRunner | None = None
    schedule: Sequence[Job[Any]] = ()
    embedded: EmbeddedDatabase | None = None
    """The SQLite file, if this process has the engine to itself."""

    async def prepare(self) -> None:
        if self.embedded is not None:
            await self.embedded.prepare()
        await self.check()

    async def start(self) -> None:  # noqa: B027 - most parts have nothing of the kind
        pass

    @abstractmethod
    async def check(self) -> None: ...

    async def check_writes(self) -> None:
        if self.runner is not None:
            await self.runner.check_writes()

    async def gauges(self) -> Gauges:
        return {}

    async def close(self) -> None:
        if self.runner is not None:
            await self.runner.stop()
        await self.close_engine()

    @abstractmethod
    async def close_engine(self) -> None:
        """Close all that was opened for the part; none of its jobs runs any more."""

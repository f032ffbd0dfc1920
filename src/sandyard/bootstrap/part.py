"""What every part looks like to the process that runs it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fastapi import APIRouter

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
        """The part's doors, the busiest first."""
        ...

    async def prepare(self) -> None:
        """Bring an embedded engine to the newest schema and free the jobs of a process that died;
        raise UnavailableError if a shared one is not fit for use."""
        ...

    async def check(self) -> None:
        """Return if the engine answers and is fit for use; else raise UnavailableError."""
        ...

    async def gauges(self) -> Gauges:
        """What `/metrics` shows of the part, read now."""
        ...

    async def close(self) -> None: ...

"""Metadata of a part that is available before it is built, without heavy imports."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from sandyard.kit.changes.events import EventLog
    from sandyard.kit.clock import Clock
    from sandyard.kit.jobs import Job
    from sandyard.kit.sql.migrations import Migrations
    from sandyard.settings import Section, Settings
    from sandyard.wiring.contents import Collection
    from sandyard.wiring.part import Part

Listen = Callable[[Any], AbstractAsyncContextManager[str]]
"""Serves an ASGI application on a free local port; yields its URL."""

Counting = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
"""Shows the progress of work with a name and a total; yields the function to report it."""

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class JobSpec:
    name: str
    """Without the node, for jobs that each node has."""
    does: str
    absent: str = ""
    """Why the part may be built without it."""

    def job(
        self,
        interval_sec: float,
        run: Callable[[], Awaitable[R]],
        *,
        node: str | None = None,
        at_start: bool = False,
        run_forced: Callable[[], Awaitable[R]] | None = None,
    ) -> "Job[R]":
        """The job itself; specific to `node`, if given."""
        from sandyard.kit.jobs import Job
        from sandyard.kit.observability.tracing import traced_job

        name = " ".join(filter(None, (self.name, node)))
        run = traced_job(self.name, run)
        run_forced = run_forced and traced_job(self.name, run_forced)
        return Job(name, interval_sec, run, at_start=at_start, run_forced=run_forced)


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Dependencies for building a part."""

    settings: "Settings"
    data_dir: Path
    clock: "Clock"
    registry: "CollectorRegistry"
    listen: Listen
    stack: AsyncExitStack
    """Closed after the part."""
    parts: Sequence["Part"]
    """The parts built before it."""


@dataclass(frozen=True, slots=True)
class WelcomeContext:
    """Inputs of the welcome text."""

    settings: "Settings"
    data_dir: Path
    url: str
    parts: Sequence["Part"]
    bearer: Callable[[str], str]
    """The `curl` option that sends the secret of this setting."""


@dataclass(frozen=True, slots=True)
class Verification:
    summary: str
    problems: Sequence[str]


class Tables(Protocol):
    """A part's DynamoDB tables, whether they exist or not."""

    @property
    def definitions(self) -> Sequence[dict[str, Any]]:
        """Each in the form of `CreateTable`."""

    async def create(
        self, billed: Callable[[dict[str, Any]], dict[str, Any]], /
    ) -> Mapping[str, str]:
        """Create missing tables and indexes; returns what was created, by table name. `billed` sets
        the billing mode of a definition."""

    async def check(self) -> None:
        """Raise unless each has the required layout."""

    async def empty(self) -> None:
        """Delete everything but the store's state."""

    async def close(self) -> None: ...


def imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def lazy(path: str) -> Callable[..., Any]:
    """The function `module:name`, imported when called: most commands need few of them."""
    return partial(_call, path)


def _call(path: str, *arguments: Any, **named: Any) -> Any:
    return imported(path)(*arguments, **named)


@dataclass(frozen=True, slots=True)
class PartSpec:
    """The description of a part: what commands and the server know of it before it is built."""

    name: str
    """Also its name in PARTS and of its database file."""
    build: Callable[[BuildContext], Awaitable["Part"]]
    """Builds the part, with the jobs listed here."""
    settings: tuple[str, ...]
    """The settings sections it reads besides `server`, its own one first."""
    jobs: tuple[JobSpec, ...]
    migrations: Callable[[], "Migrations"]
    verify: Callable[["Settings", Path, Counting], Awaitable[Verification]]
    """Reads all data, also while in use, and checks all invariants."""
    log: Callable[["Settings", Path], AbstractAsyncContextManager["EventLog"]]
    """Opens its event log."""
    is_for_tenants: bool = False
    """Whether it does what tenants ask for: it runs in the tenants' process, so that their work
    delays no claim and no reading."""
    needs: tuple[str, ...] = ()
    """The parts that it is built on."""
    secrets: tuple[str, ...] = ()
    """The secrets of its own settings section that it can't start without."""
    store_setting: str | None = None
    """The setting of its own section that selects SQL or DynamoDB; None: always SQL."""
    tables: Callable[["Settings"], Tables] | None = None
    """Its DynamoDB tables."""
    contents: (
        Callable[["Settings", Path], AbstractAsyncContextManager[Sequence["Collection"]]] | None
    ) = None
    """Opens all that its stores have, if it supports DynamoDB."""
    check_settings: Callable[["Settings", Path], Awaitable[None]] | None = None
    """Raises if the stored data must not be served with these settings."""
    one_process: Callable[["Settings"], str | None] = lambda _settings: None
    """The setting that prevents several processes from serving the part, and why."""
    missing: Callable[["Settings"], Sequence[str]] = lambda _settings: ()
    """What this machine lacks for it, each with what does not work without it; the part starts
    anyway."""
    notes: Callable[[WelcomeContext], Mapping[str, str]] = lambda _context: {}
    """Lines of the welcome text, besides the engine."""
    examples: Callable[[WelcomeContext], Iterable[str]] = lambda _context: ()
    """Commands to paste, under a line that describes them."""

    @property
    def database_file(self) -> str:
        """The name of its SQLite file in the data dir, if it is embedded."""
        return f"{self.name}.db"

    def is_on_dynamodb(self, settings: "Settings") -> bool:
        chosen = self.store_setting and getattr(self.own_settings(settings), self.store_setting)
        return chosen == "dynamodb"

    def is_embedded(self, settings: "Settings") -> bool:
        """Whether its data is in the data dir, and so belongs to one process."""
        return settings.server.database_url is None and not self.is_on_dynamodb(settings)

    def engine_of(self, settings: "Settings") -> str:
        if self.is_on_dynamodb(settings):
            return "dynamodb"
        return "sqlite" if self.is_embedded(settings) else "postgresql"

    def has_data(self, settings: "Settings", data_dir: Path) -> bool:
        """Whether there is something to open: a shared engine, or its file in the data dir."""
        return not self.is_embedded(settings) or (data_dir / self.database_file).exists()

    def own_settings(self, settings: "Settings") -> "Section":
        section: Section = getattr(settings, self.settings[0])
        return section

    def find_job(self, name: str) -> JobSpec | None:
        return next((job for job in self.jobs if job.name == name), None)


def get_part(parts: Sequence["Part"], kind: type[P]) -> P:
    """The part of this class, which the spec's `needs` guarantees."""
    return next(part for part in parts if isinstance(part, kind))

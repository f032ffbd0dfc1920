"""What is to be known of a part before it is built; nothing heavy is imported for it."""

import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from sandyard.bootstrap.part import Part
    from sandyard.bootstrap.part_engine import PartEngine
    from sandyard.kit.clock import Clock
    from sandyard.kit.events import EventLog
    from sandyard.kit.jobs import Job
    from sandyard.kit.sql.database import Database
    from sandyard.kit.sql.migrations import Migrations
    from sandyard.settings import Section, Settings

Store = Literal["sql", "dynamodb"]
Listen = Callable[[Any], AbstractAsyncContextManager[str]]
"""Serves an ASGI application on a free port of this machine; gives its URL."""

Counting = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
"""Shows how far work with a name and a total is; gives the function that is told."""

P = TypeVar("P")
R = TypeVar("R")


def new_secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class SecretSpec:
    """A secret that a part can't start without."""

    setting: str
    """Its name in the part's own section of the settings."""
    make: Callable[[], str] = new_secret
    """Makes one at the first start on an embedded engine."""
    missing: str = "must be set"
    """What is wrong if a shared engine has none: replicas would each make another."""

    @property
    def variable(self) -> str:
        return self.setting.upper()


@dataclass(frozen=True, slots=True)
class JobSpec:
    name: str
    """Without the node, if each node has one of its own."""
    does: str
    absent: str = ""
    """Why the part may be built without it."""
    lease: str = ""
    """What its lease is called after its name, where an older release has another job of it."""

    def job(
        self,
        interval_sec: float,
        run: Callable[[], Awaitable[R]],
        *,
        node: str | None = None,
        at_start: bool = False,
        run_forced: Callable[[], Awaitable[R]] | None = None,
    ) -> "Job[R]":
        """The job itself; of one node, if that is named."""
        from sandyard.kit.jobs import Job
        from sandyard.kit.observability.tracing import traced_job

        name = " ".join(filter(None, (self.name, self.lease, node)))
        run = traced_job(self.name, run)
        run_forced = run_forced and traced_job(self.name, run_forced)
        return Job(name, interval_sec, run, at_start=at_start, run_forced=run_forced)


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What a part is built from."""

    settings: "Settings"
    data_dir: Path
    clock: "Clock"
    registry: "CollectorRegistry"
    listen: Listen
    stack: AsyncExitStack
    """Closed after the part."""
    parts: Sequence["Part"]
    """Those that were built before it."""
    engines: Mapping[str, "PartEngine"]
    """Those that were opened before their part."""

    def find_database(self, part: str) -> "Database | None":
        """That of the part's engine, if it is open."""
        return self.engines[part].database if part in self.engines else None


@dataclass(frozen=True, slots=True)
class WelcomeContext:
    """What the lines that greet a person are made from."""

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
        """Each as `CreateTable` takes it."""
        ...

    async def create(
        self, billed: Callable[[dict[str, Any]], dict[str, Any]], /
    ) -> Mapping[str, str]:
        """Make the tables and indexes that are not there; by each table's name, what was made.
        `billed` gives a definition its billing mode."""
        ...

    async def check(self) -> None:
        """Raise unless each is laid out as it must be."""
        ...

    async def close(self) -> None: ...


def imported(path: str) -> Any:
    """What `module:name` is, imported now."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def lazy(path: str) -> Callable[..., Any]:
    """The function `module:name`, imported when it is called: most commands need few of them."""
    return partial(_call, path)


def _call(path: str, *arguments: Any, **named: Any) -> Any:
    return imported(path)(*arguments, **named)


def _sql(_settings: "Settings") -> Store:
    return "sql"


def _no_notes(_context: WelcomeContext) -> Mapping[str, str]:
    return {}


def _no_examples(_context: WelcomeContext) -> Iterator[str]:
    return iter(())


def _nothing(_settings: "Settings") -> Sequence[str]:
    return ()


def _no_reason(_settings: "Settings") -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class PartSpec:
    """One part of Sandyard: all that the commands and the server know of it."""

    name: str
    """Also its name in PARTS and of its database file."""
    build: Callable[[BuildContext], Awaitable["Part"]]
    """The part itself, with the routers and jobs that are named here."""
    settings: tuple[str, ...]
    """The sections of the settings that are read for it beside `server`, its own one first."""
    routers: tuple[str, ...]
    """The modules of its endpoints, in the order of its routers: the busiest first."""
    engine: Callable[["Settings", Path], "PartEngine"] | None = None
    """Opens its engine alone, or refuses settings that it can't be built with. Such a part is
    imported and built when the port is open, and whoever calls it sooner waits."""
    needs: tuple[str, ...] = ()
    """The parts that it is built on."""
    jobs: tuple[JobSpec, ...] = ()
    secrets: tuple[SecretSpec, ...] = ()
    store: Callable[["Settings"], Store] = _sql
    migrations: Callable[[], "Migrations"] | None = None
    tables: Callable[["Settings"], Tables] | None = None
    """On DynamoDB."""
    adopt: Callable[["Settings"], Awaitable[Sequence[str]]] | None = None
    """Add what is missing in tables that another program or an older version filled; says what."""
    verify: Callable[["Settings", Path, Counting], Awaitable[Verification]] | None = None
    """Read all data, also while it is in use, and say whether all that must hold does."""
    adopt_changes: Callable[["Settings", Path], Awaitable[int]] | None = None
    """Write a baseline event for all that a server of 0.1.0 has changed beside this release; how
    many there were. None if the two can't run side by side."""
    log: Callable[["Settings", Path], AbstractAsyncContextManager["EventLog"]] | None = None
    """Its event log, for as long as it is read."""
    check_settings: Callable[["Settings", Path], Awaitable[None]] | None = None
    """Raise if what is stored must not be served with these settings."""
    one_process: Callable[["Settings"], str | None] = _no_reason
    """The setting that keeps several processes from serving the part, and why."""
    missing: Callable[["Settings"], Sequence[str]] = _nothing
    """What this machine lacks for it, each with what does not work without; it starts all the
    same."""
    notes: Callable[[WelcomeContext], Mapping[str, str]] = _no_notes
    """What a person is told at the start beside the engine."""
    examples: Callable[[WelcomeContext], Iterator[str]] = _no_examples
    """Commands to paste, under a line that says what they do."""

    @property
    def database_file(self) -> str:
        """The name of its SQLite file in the data dir, if it is embedded."""
        return f"{self.name}.db"

    def is_embedded(self, settings: "Settings") -> bool:
        """Whether its data is in the data dir, and so belongs to one process."""
        return settings.server.database_url is None and self.store(settings) == "sql"

    def own_settings(self, settings: "Settings") -> "Section":
        """The section that has its secrets."""
        section: Section = getattr(settings, self.settings[0])
        return section

    def find_job(self, name: str) -> JobSpec | None:
        return next((job for job in self.jobs if job.name == name), None)


def get_part(parts: Sequence["Part"], kind: type[P]) -> P:
    """The part of this class, which a spec's `needs` puts there."""
    return next(part for part in parts if isinstance(part, kind))

"""The only way SQL stores change state: transitions, compared and written in one transaction."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cache
from itertools import groupby
from typing import Any, ClassVar, Generic, TypeVar, get_type_hints

import sqlalchemy as sa
from sqlalchemy import exc

from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import E, Entity, Transition, subject_of
from sandyard.kit.errors import SandyardError
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.events import EventWriter
from sandyard.kit.wired import wired

F = TypeVar("F")


class StaleTransitionError(Exception):
    """Something is not any more what the transition was decided from; nothing is written."""


@dataclass(frozen=True, slots=True)
class EntityTable(Generic[E]):
    """The table of one kind of entity, a row each; columns are named like the fields, unless
    `renamed` says otherwise."""

    entity: type[E]
    table: sa.Table
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def subject(self) -> sa.Column[Any]:
        return self.column(self.entity.SUBJECT)

    @property
    def columns(self) -> list[sa.Column[Any]]:
        """The columns that `entity_of` needs."""
        return [self.column(name) for name in _names(self.entity)]

    def key(self, entity: Entity) -> sa.ColumnElement[bool]:
        return self.column(entity.SUBJECT) == subject_of(entity)

    def column(self, name: str) -> sa.Column[Any]:
        return self.table.c[self.renamed.get(name, name)]

    def row(self, entity: Entity) -> dict[str, Any]:
        return {self.renamed.get(name, name): getattr(entity, name) for name in _names(self.entity)}

    def entity_of(self, row: Any) -> E:
        kinds = _enums(self.entity)
        values = {name: getattr(row, self.renamed.get(name, name)) for name in _names(self.entity)}
        return self.entity(**values | {name: kinds[name](values[name]) for name in kinds})


@cache
def _names(entity: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(entity))


@cache
def _enums(entity: type) -> Mapping[str, type[Enum]]:
    """The Enum fields, whose columns hold their values."""
    return {
        name: kind
        for name, kind in get_type_hints(entity).items()
        if isinstance(kind, type) and issubclass(kind, Enum)
    }


@dataclass(frozen=True, slots=True)
class FactReader:
    """How to reread a fact, and the name of the lock that protects it.

    A change that could make the fact untrue must be decided from a fact with the same lock.
    """

    lock: Callable[[Any], str]
    read: Callable[[sa.Connection, Any], Any]


@wired
class SqlTransitions:
    """Applies transitions of the registered entities."""

    database: Database
    tables: Sequence[EntityTable[Any]]
    events: EventWriter
    facts: Mapping[type, FactReader] | None = None

    def __post_init__(self) -> None:
        self._tables = {each.entity: each for each in self.tables}
        self._facts = self.facts or {}

    async def apply(
        self, *transitions: Transition[Any], extra_events: Sequence[Event] = ()
    ) -> bool:
        """Apply all with their events in one transaction; False, with nothing written, if one of
        the entities or facts has changed since the decision. IntegrityError if a key exists."""
        try:
            await self.database.write(
                lambda connection: self.write(connection, transitions, extra_events)
            )
        except StaleTransitionError:
            return False
        return True

    async def read_fact(self, about: F) -> F:
        """The current fact; `about` only identifies it."""
        reader = self._facts[type(about)]
        fact: F = await self.database.read(lambda connection: reader.read(connection, about))
        return fact

    def write(
        self,
        connection: sa.Connection,
        transitions: Sequence[Transition[Any]],
        extra_events: Sequence[Event] = (),
    ) -> None:
        """The same inside the caller's transaction; raises StaleTransitionError."""
        self._require_facts(
            connection, [fact for each in transitions for fact in each.preconditions]
        )
        for kind, group in groupby(transitions, key=_inserted):
            if kind is None:
                for each in group:
                    self._write_change(connection, each)
            else:
                mapping = self._tables[kind]
                connection.execute(
                    mapping.table.insert(), [mapping.row(each.result) for each in group]
                )
        self.events.write(
            connection, [event for each in transitions for event in each.events] + [*extra_events]
        )

    def _require_facts(self, connection: sa.Connection, facts: Sequence[Any]) -> None:
        readers = [(self._facts[type(fact)], fact) for fact in facts]
        for name in sorted({reader.lock(fact) for reader, fact in readers}):
            lock_name(connection, name)
        for reader, fact in readers:
            if reader.read(connection, fact) != fact:
                raise StaleTransitionError

    def _write_change(self, connection: sa.Connection, transition: Transition[Any]) -> None:
        before, after = transition.before, transition.after
        if before is None:
            return
        mapping = self._tables[type(before)]
        unchanged = (mapping.key(before), mapping.table.c.sequence == before.sequence)
        if after is None:
            done = connection.execute(mapping.table.delete().where(*unchanged))
        else:
            old, new = mapping.row(before), mapping.row(after)
            values = {name: value for name, value in new.items() if value != old[name]}
            done = connection.execute(mapping.table.update().where(*unchanged).values(values))
        if done.rowcount != 1:
            raise StaleTransitionError


class SqlEntityStore:
    """Base of entity stores: `apply` is their only way to change state."""

    name_taken: ClassVar[type[SandyardError] | None] = None
    """Raised if a name or another unique value is taken."""

    def __init__(self, database: Database, transitions: SqlTransitions) -> None:
        self._database = database
        self._transitions = transitions

    async def apply(
        self, *transitions: Transition[Any], extra_events: Sequence[Event] = ()
    ) -> bool:
        try:
            return await self._transitions.apply(*transitions, extra_events=extra_events)
        except exc.IntegrityError as error:
            if self.name_taken is None:
                raise
            raise self.name_taken from error

    async def read_fact(self, about: F) -> F:
        return await self._transitions.read_fact(about)


def _inserted(transition: Transition[Any]) -> type | None:
    """The type of a newly created entity. Adjacent ones of the same type are inserted together."""
    return type(transition.after) if transition.before is None and transition.after else None


def lock_name(connection: sa.Connection, name: str) -> None:
    """Take an advisory lock until the transaction ends. Not needed on SQLite, which has one
    writer."""
    if connection.dialect.name == "postgresql":
        number = sa.func.hashtextextended(f"{name}", 0)
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(number)))

"""Transitions: a decided change of one entity, with its events.

A decision is a pure function of a model that returns a transition. A store applies it if the entity
still has the sequence that it was decided from, and writes the events in the same transaction.
"""

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import orjson

from sandyard.kit.changes.events import Effect, Event, State
from sandyard.kit.changes.frozen import fast_constructor, quick_replace
from sandyard.kit.clock import Clock, rfc3339_from_ms, utc_time

SECRET: Mapping[str, bool] = {"secret": True}
"""Marks a dataclass field that no event may contain: `field(metadata=SECRET)`."""
DATA: Mapping[str, bool] = {"data": True}
"""Marks a field that is data, not state, such as the time something was last seen."""
TEXT_TIME: Mapping[str, Callable[[int], str]] = {"form": rfc3339_from_ms}
"""Marks a time in epoch milliseconds that events store as RFC 3339."""

ATTEMPTS = 20
"""How many times a use case retries its decision after concurrent changes, before it fails."""
FULL_EVERY = 50
"""A change whose sequence is a multiple of this records the whole state, so that earlier events can
be pruned."""
LONGEST_RECORDED = 1000
"""The longest text in an event, in characters."""
_FIRST_PAUSE_SEC = 0.002
_LONGEST_PAUSE_SEC = 0.05
_PLAIN = frozenset({type(None), bool, int, float, str})
_NOTHING: dict[str, Any] = {}


class Entity(Protocol):
    """A frozen dataclass that is changed only by transitions."""

    SUBJECT: ClassVar[str]
    """The field that identifies it in events."""
    OWNER: ClassVar[str | None]
    """The field with the account that owns it, if any."""

    @property
    def sequence(self) -> int:
        """The number of its changes, which a compare-and-set checks."""


E = TypeVar("E", bound=Entity)
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Transition(Generic[E]):
    """From `before` to `after`. Without `before` the entity is created, without `after` removed.

    `preconditions` are facts beyond the entity that the decision depends on, such as a count of
    others. A store reads them again under a lock: if one has changed, nothing is applied.
    """

    before: E | None
    after: E | None
    events: tuple[Event, ...]
    preconditions: tuple[Any, ...] = ()

    @property
    def result(self) -> E:
        """The entity after a change that does not remove it."""
        if self.after is None:
            raise ValueError("the entity is removed")
        return self.after


@dataclass(frozen=True, slots=True)
class Cause:
    """Who changes something, when and why."""

    actor: str
    at_ms: int
    reason: str | None = None

    @classmethod
    def by(cls, actor: str, clock: Clock, *, reason: str | None = None) -> "Cause":
        return cls(actor, round(clock.now() * 1000), reason)

    @property
    def at(self) -> datetime:
        return utc_time(self.at_ms / 1000)

    def because(self, reason: str | None) -> "Cause":
        return replace(self, reason=reason)


def created(
    entity: E, kind: str, cause: Cause, *, first: int = 1, preconditions: tuple[Any, ...] = ()
) -> Transition[E]:
    """Create the entity, with `first` as its sequence. For an id that may be reused after a
    removal, pass the time: then the new entity's sequences are greater than the old one's."""
    entity = _numbered(entity, first)
    event = _event(entity, kind, cause, Effect.FULL, state_of(entity))
    return Transition(None, entity, (event,), preconditions)


def changed(
    before: E,
    after: E,
    kind: str,
    cause: Cause,
    *,
    preconditions: tuple[Any, ...] = (),
    also: tuple[str, ...] = (),
) -> Transition[E]:
    """The event contains the fields that differ, and those of `also`; periodically, the whole
    state."""
    after = _numbered(after, before.sequence + 1)
    if after.sequence % FULL_EVERY:
        data = {name: recorded(getattr(after, name)) for name in also}
        data |= state_changes(before, after)
        event = _event(after, kind, cause, Effect.PARTIAL, data)
    else:
        event = _event(after, kind, cause, Effect.FULL, state_of(after))
    return Transition(before, after, (event,), preconditions)


def changed_fields(
    before: E,
    changes: Mapping[str, Any],
    kind: str,
    cause: Cause,
    *,
    also: dict[str, Any] = _NOTHING,
) -> Transition[E]:
    """The same if the fields that may differ are known, for decisions made thousands of times a
    second. All of them are state. `also` are unchanged fields for the event."""
    sequence = before.sequence + 1
    after = quick_replace(before, {"sequence": sequence, **changes})
    if not sequence % FULL_EVERY:
        return Transition(
            before, after, (_event(after, kind, cause, Effect.FULL, state_of(after)),)
        )
    data = {
        name: new if type(new) in _PLAIN else recorded(new)
        for name, new in changes.items()
        if new != getattr(before, name)
    }
    return Transition(before, after, (_event(after, kind, cause, Effect.PARTIAL, data | also),))


def replaced(before: E, after: E, kind: str, cause: Cause) -> Transition[E]:
    """Another entity replaces this one under the same subject; the event contains all of it."""
    after = _numbered(after, before.sequence + 1)
    event = _event(after, kind, cause, Effect.FULL, state_of(after))
    return Transition(before, after, (event,))


def followed_by(first: Transition[E], second: Transition[E]) -> Transition[E]:
    """Both in one write, with both sets of events."""
    return Transition(first.before, second.after, (*first.events, *second.events))


def removed(before: E, kind: str, cause: Cause) -> Transition[E]:
    last = _numbered(before, before.sequence + 1)
    return Transition(before, None, (_event(last, kind, cause, Effect.REMOVED, {}),))


def stateless_event(
    subject: str,
    kind: str,
    cause: Cause,
    *,
    account_id: str | None = None,
    data: State | None = None,
) -> Event:
    """An event that changed nothing, such as a failed login."""
    return Event(
        kind=kind,
        subject=subject,
        sequence=None,
        actor=cause.actor,
        at_ms=cause.at_ms,
        effect=Effect.NONE,
        data=data or {},
        reason=cause.reason,
        account_id=account_id,
    )


class ConflictRetries:
    """`async for _ in ConflictRetries()`: up to ATTEMPTS iterations, with increasing random delays
    in between, so that processes do not keep conflicting."""

    def __init__(self) -> None:
        self._made = 0

    def __aiter__(self) -> "ConflictRetries":
        return self

    async def __anext__(self) -> int:
        if self._made == ATTEMPTS:
            raise StopAsyncIteration
        if self._made:
            longest = min(_LONGEST_PAUSE_SEC, _FIRST_PAUSE_SEC * 2**self._made)
            await asyncio.sleep(random.uniform(0, longest))  # noqa: S311 - no secret
        self._made += 1
        return self._made


async def change_entity(
    find: Callable[[], Awaitable[E | None]],
    decide: Callable[[E | None], Transition[E] | None],
    apply: Callable[[Transition[E]], Awaitable[bool]],
    *,
    busy: type[Exception],
    lock: asyncio.Lock | None = None,
) -> E:
    """Read, decide and apply; retry after a concurrent change. Returns the entity after the change,
    or as read if the decision is to change nothing or to remove it. Callers that share the lock are
    serialized. Raises `busy` after ATTEMPTS conflicts."""
    async with lock or nullcontext():
        async for _ in ConflictRetries():
            entity = await find()
            transition = decide(entity)
            if transition is None and entity is not None:
                return entity
            if transition is not None and await apply(transition):
                return transition.after or transition.before  # type: ignore[return-value]
    raise busy


async def apply_decision(
    decide: Callable[[], Awaitable[D]],
    apply: Callable[[Any], Awaitable[bool]],
    *,
    busy: type[Exception],
) -> D:
    """For decisions that need more than one entity: `decide` reads what it needs and returns one
    transition or several (whatever `apply` takes). Retries after a concurrent change. Returns the
    decision that was applied; an empty one (None, no transitions) is returned without being
    applied. Raises `busy` after ATTEMPTS conflicts."""
    async for _ in ConflictRetries():
        decision = await decide()
        if not decision or await apply(decision):
            return decision
    raise busy


def subject_of(entity: Entity) -> str:
    return str(getattr(entity, entity.SUBJECT))


def state_of(entity: Any) -> dict[str, Any]:
    """The state fields of an entity, in JSON values: no secrets and no data."""
    forms = state_fields(type(entity))
    return {name: form(getattr(entity, name)) for name, form in forms.items()}


def state_changes(before: Any, after: Any) -> dict[str, Any]:
    return {
        name: form(new)
        for name, form in state_fields(type(after)).items()
        if (new := getattr(after, name)) != getattr(before, name)
    }


def state_fields(kind: type) -> Mapping[str, Callable[[Any], Any]]:
    """The state fields, and the conversion of each to its form in events."""
    forms = _STATE_FIELDS.get(kind)
    if forms is None:
        forms = _STATE_FIELDS[kind] = {
            each.name: each.metadata.get("form", recorded)
            for each in fields(kind)
            if each.name != "sequence" and not each.metadata.keys() & {"secret", "data"}
        }
    return forms


_STATE_FIELDS: dict[type, Mapping[str, Callable[[Any], Any]]] = {}


def recorded(value: Any) -> Any:
    """The value in an event: as JSON; if it is long, as its hash, so that changes of a long text in
    a loop do not fill the disk."""
    form = json_value(value)
    if not isinstance(form, str | list | dict) or len(str(form)) <= LONGEST_RECORDED:
        return form
    content = orjson.dumps(form, option=orjson.OPT_SORT_KEYS)
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def json_value(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    match value:
        case Enum():
            return value.value
        case datetime():
            utc = value.astimezone(UTC)
            return utc.isoformat(timespec="microseconds").replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case Mapping():
            return {str(key): json_value(each) for key, each in value.items()}
        case list() | tuple():
            return [json_value(each) for each in value]
        case _ if is_dataclass(value):
            return {each.name: json_value(getattr(value, each.name)) for each in fields(value)}
    raise TypeError(f"{type(value).__name__} has no JSON form here")


def _numbered(entity: E, sequence: int) -> E:
    return quick_replace(entity, {"sequence": sequence})


def _event(entity: Entity, kind: str, cause: Cause, effect: Effect, data: State) -> Event:
    owner = entity.OWNER
    account_id = None if owner is None else getattr(entity, owner)
    subject, sequence = subject_of(entity), entity.sequence
    what = (kind, subject, sequence, cause.actor, cause.at_ms, effect, data)
    return _make_event(*what, cause.reason, account_id)


_make_event = fast_constructor(Event)

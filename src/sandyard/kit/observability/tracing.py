"""Traces: where the time of a request or job goes. Off unless a collector is named.

As with logging there is one for the process, `start` sets it before the parts are built. While it
is off, `traced` and its like give back what they were given, so nothing is left of it in a call.
"""

import re
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")
Kind = Literal["internal", "client", "producer"]
Hook = Callable[[Any], Awaitable[None]]
_HEADER = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z")


@dataclass(frozen=True, slots=True)
class TraceParent:
    """The caller's span, as W3C Trace Context has it in the header `traceparent`."""

    trace_id: str
    span_id: str
    is_sampled: bool


def parse_traceparent(value: bytes) -> TraceParent | None:
    """None if it is malformed: the trace then begins here."""
    found = _HEADER.match(value)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    is_known = version != b"ff" and not (version == b"00" and more)
    if not is_known or not trace_id.strip(b"0") or not span_id.strip(b"0"):
        return None
    return TraceParent(trace_id.decode(), span_id.decode(), bool(int(flags, 16) & 1))


@dataclass(frozen=True, slots=True)
class Written:
    """An event that a call has written, and the key by which its delivery finds the trace."""

    kind: str
    key: Hashable


@dataclass(frozen=True, slots=True)
class About:
    """What the spans of one port are called, and what they tell."""

    name: str
    kind: Kind = "internal"
    attributes: Mapping[str, str] | None = None
    label: Callable[[Sequence[Any]], str] | None = None
    """The span's name from the call's arguments, in place of the method's."""
    calls: frozenset[str] | None = None
    """The methods that are traced. None: all that are awaited."""
    written: Mapping[str, Callable[[Sequence[Any], Any], Iterable[Written]]] | None = None
    """By method, the events that a call has written, from its arguments and result."""
    follows: Callable[[Sequence[Any]], Hashable] | None = None
    """The key of the event that a call is about: it belongs to the trace that wrote it."""


class Tracing(Protocol):
    def port(self, port: T, about: About) -> T:
        """The port, with a span around each call that is made inside a trace."""
        ...

    def job(self, name: str, run: Callable[[], Awaitable[R]]) -> Callable[[], Awaitable[R]]:
        """A job, each of whose runs begins a trace if it is sampled."""
        ...

    def request_hooks(self) -> Sequence[Hook]:
        """Called with each outgoing request of `httpx`, to which they add `traceparent`."""
        ...


class _Process:
    tracing: Tracing | None = None


def start(tracing: Tracing | None) -> None:
    """What is built from now on is traced by this; by nothing, if it is None."""
    _Process.tracing = tracing


def traced(port: T, about: About) -> T:
    return port if _Process.tracing is None else _Process.tracing.port(port, about)


def traced_job(name: str, run: Callable[[], Awaitable[R]]) -> Callable[[], Awaitable[R]]:
    return run if _Process.tracing is None else _Process.tracing.job(name, run)


def request_hooks() -> dict[str, list[Hook]]:
    """For `httpx`'s `event_hooks`."""
    return {} if _Process.tracing is None else {"request": [*_Process.tracing.request_hooks()]}

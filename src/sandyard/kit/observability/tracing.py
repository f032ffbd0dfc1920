"""Traces: where a request or job spends its time. Off unless a collector is configured.

As with logging there is one tracer per process; `start` sets it before the parts are built. While
it is off, `traced` and similar functions return their argument, so calls have no overhead.
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
    """The caller's span, from the W3C Trace Context header `traceparent`."""

    trace_id: str
    span_id: str
    is_sampled: bool


def parse_traceparent(value: bytes) -> TraceParent | None:
    """None if malformed: the trace then starts here."""
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
    """An event that a call wrote, and the key by which its delivery finds the trace."""

    kind: str
    key: Hashable


@dataclass(frozen=True, slots=True)
class About:
    """Names and attributes of the spans of one port."""

    name: str
    kind: Kind = "internal"
    attributes: Mapping[str, str] | None = None
    label: Callable[[Sequence[Any]], str] | None = None
    """The span's name from the call's arguments, instead of the method's name."""
    calls: frozenset[str] | None = None
    """The methods to trace. None: all async ones."""
    written: Mapping[str, Callable[[Sequence[Any], Any], Iterable[Written]]] | None = None
    """By method, the events that a call wrote, from its arguments and result."""
    follows: Callable[[Sequence[Any]], Hashable] | None = None
    """The key of the event that a call is about: the call belongs to the trace that wrote the
    event."""


class Tracing(Protocol):
    def port(self, port: T, about: About) -> T:
        """The port, with a span around each call made inside a trace."""

    def job(self, name: str, run: Callable[[], Awaitable[R]]) -> Callable[[], Awaitable[R]]:
        """The job; each sampled run starts a trace."""

    def request_hooks(self) -> Sequence[Hook]:
        """Called with each outgoing `httpx` request, to add `traceparent`."""


class _Process:
    tracing: Tracing | None = None


def start(tracing: Tracing | None) -> None:
    """Trace everything built from now on; None turns tracing off."""
    _Process.tracing = tracing


def traced(port: T, about: About) -> T:
    return port if _Process.tracing is None else _Process.tracing.port(port, about)


def traced_job(name: str, run: Callable[[], Awaitable[R]]) -> Callable[[], Awaitable[R]]:
    return run if _Process.tracing is None else _Process.tracing.job(name, run)


def request_hooks() -> dict[str, list[Hook]]:
    """For `httpx`'s `event_hooks`."""
    return {} if _Process.tracing is None else {"request": [*_Process.tracing.request_hooks()]}

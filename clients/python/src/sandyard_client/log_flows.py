"""Streams that are followed live: log lines, events, readings."""

import codecs
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sandyard_client.calls import Calls, chunks, emitted
from sandyard_client.sandbox_flows import about
from sandyard_client.steps import Emit, Flow, Sleep
from sandyard_client.wire import Credential, Request

_FOLLOWED_SEC = 86_400.0
_OVERLAP = timedelta(seconds=60)
_REMEMBERED = 20_000
_PAGE = 100


def log_lines(calls: Calls, path: str, *, lines: int, follow: bool) -> Flow[None]:
    """Emits the log of a sandbox or preview at this path, line by line. ConnectionFailedError if
    following is interrupted: logs have no offsets, so continuing could repeat lines."""
    if not follow:
        told = yield from calls.json(about("GET", path, query={"lines": lines}))
        for line in told["lines"]:
            yield Emit(line)
        return
    query = {"lines": lines, "follow": True}
    stream = yield from calls.open(about("GET", path, query=query, timeout_sec=_FOLLOWED_SEC))
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    while (piece := (yield from chunks(stream))) is not None:
        *whole, rest = (rest + decoder.decode(piece)).split("\n")
        for line in whole:
            yield Emit(line)
    if rest:
        yield Emit(rest)


@dataclass(frozen=True, slots=True)
class EventLog:
    """A part's events and the credential to read them."""

    path: str
    credential: Credential


EVENT_LOGS: Mapping[str, EventLog] = {
    "broker": EventLog("/v1/admin/events", Credential.ADMIN),
    "telemetry": EventLog("/telemetry/v1/events", Credential.TELEMETRY),
    "account": EventLog("/api/v1/events", Credential.ACCOUNT),
    "platform": EventLog("/api/v1/admin/events", Credential.ACCOUNT),
}


def tail_events(
    calls: Calls,
    log: EventLog,
    *,
    since: datetime,
    filters: Mapping[str, str | None],
    every_sec: float,
) -> Flow[None]:
    """Emits each event once, oldest first, indefinitely. Each poll starts a minute before the last
    one, as an event may appear in the log slightly after its time."""
    seen = _Seen()
    while True:
        query = {**filters, "from": since.isoformat(), "limit": _PAGE}
        request = Request("GET", log.path, log.credential, is_repeatable=True, query=query)
        began_at = datetime.now(UTC)
        found = yield from emitted(calls.pages(request, "events"))
        for event in reversed(found):
            if seen.is_new(event["event_id"]):
                yield Emit(event)
        since = max(since, began_at - _OVERLAP)
        yield Sleep(every_sec)


def tail_readings(calls: Calls, hardware_id: str, *, since_ms: int, every_sec: float) -> Flow[None]:
    """Emits each reading of the device from that time on once, including late ones."""
    seen = _Seen()
    while True:
        request = Request(
            "GET",
            f"/telemetry/v1/devices/{hardware_id}/readings",
            Credential.TELEMETRY,
            is_repeatable=True,
            query={"from": since_ms, "limit": 1000},
        )
        found = yield from emitted(calls.pages(request, "readings", limit=_REMEMBERED // 2))
        for reading in reversed(found):
            if seen.is_new(reading["batch_id"]):
                yield Emit(reading)
        yield Sleep(every_sec)


class _Seen:
    """The most recent ids that were emitted."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def is_new(self, item_id: str) -> bool:
        if item_id in self._ids:
            return False
        self._ids[item_id] = None
        if len(self._ids) > _REMEMBERED:
            self._ids.popitem(last=False)
        return True


def watched(look: Callable[[], Flow[Any]], *, every_sec: float) -> Flow[None]:
    """Emits the result of `look` whenever it has changed."""
    before: Any = None
    while True:
        found = yield from look()
        if found != before:
            before = found
            yield Emit(found)
        yield Sleep(every_sec)

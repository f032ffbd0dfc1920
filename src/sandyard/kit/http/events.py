"""API schema of events, the same in every part."""

import re
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from fastapi import Query
from pydantic import AwareDatetime, BeforeValidator

from sandyard.kit.changes.event_kinds import require_known_kinds
from sandyard.kit.changes.events import Effect, EventListing, EventLog, EventQuery, LoggedEvent
from sandyard.kit.http.schemas import Documented, PageAnswer, PageRequest, Paging, eg
from sandyard.kit.patterns import pattern

_TEXT = pattern(
    r"^[A-Za-z0-9][ -~]*$", "must be ASCII characters, the first of them a letter or a digit"
)


def _text(description: str) -> Any:
    return Query(max_length=200, pattern=_TEXT, description=description)


_Subject = Annotated[str | None, _text("The id of what the event is about")]
_Kind = Annotated[str | None, _text("Such as `lease.created`, or `lease.*`")]
_Actor = Annotated[str | None, _text("Such as `track:demo`, `account:…` or `job:expiry`, in full")]
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.IGNORECASE)


def _is_rfc3339(sent: Any) -> Any:
    """Pydantic would also accept numbers as times."""
    if isinstance(sent, str) and not _RFC3339.fullmatch(sent):
        raise ValueError("must be a time such as 2026-11-16T09:00:00Z")
    return sent


_Time = Annotated[AwareDatetime, BeforeValidator(_is_rfc3339)]
_From = Annotated[_Time | None, Query(alias="from", description="RFC 3339; events from then on")]
_To = Annotated[_Time | None, Query(alias="to", description="RFC 3339; events before then")]


class EventAnswer(Documented):
    event_id: str = eg("01a3185c50000000012f9a4c1b", description="Sorts by the time of writing")
    part: str = eg("broker")
    kind: str = eg("lease.created")
    subject: str = eg("0b5e1f4e-5d6c-5a57-9f0f-6a1d3b6a9c11")
    sequence: int | None = eg(
        1794830401, description="Number of the subject's change; null if nothing changed"
    )
    actor: str = eg(
        "track:demo", description="Such as track:demo, account:…, key:…, operator, job:expiry"
    )
    at: datetime = eg("2026-11-16T12:00:01Z")
    reason: str | None
    effect: Effect = eg(
        "partial",
        description="full: data is the whole state; partial: what changed; removed: the subject is "
        "gone; none: nothing changed",
    )
    data: dict[str, Any] = eg({"status": "allocated", "allocated_to_track": "demo"})

    @classmethod
    def of(cls, logged: LoggedEvent) -> Self:
        at = datetime.fromtimestamp(logged.event.at_ms / 1000, UTC)
        of_log = {"event_id": logged.event_id, "part": logged.part, "at": at}
        return cls.model_validate(asdict(logged.event) | of_log)


class EventPage(PageAnswer):
    events: list[EventAnswer]
    next_cursor: str | None


class EventFilter:
    """The filters of `…/events`, as a dependency."""

    def __init__(
        self,
        paging: Paging,
        subject: _Subject = None,
        kind: _Kind = None,
        actor: _Actor = None,
        from_: _From = None,
        to: _To = None,
    ) -> None:
        require_known_kinds([] if kind is None else [kind])
        from_ms, to_ms = (int(at.timestamp() * 1000) if at else None for at in (from_, to))
        self._query = EventQuery(subject, kind, actor, from_ms=from_ms, to_ms=to_ms)
        self._paging = paging

    async def page(self, log: EventListing, *, account_id: str | None = None) -> EventPage:
        query = replace(self._query, account_id=account_id)
        page = await log.page(query, **self._paging)
        return EventPage.of(page, EventAnswer.of)


async def history_of(
    log: EventLog, subject: str, paging: PageRequest, *, account_id: str | None = None
) -> EventPage:
    query = EventQuery(subject=subject, account_id=account_id)
    return EventPage.of(await log.page(query, **paging), EventAnswer.of)

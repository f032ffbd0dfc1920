"""The headers that tracks send, read and validated in one place."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sandyard.broker.pool.errors import (
    InvalidIdempotencyKeyError,
    InvalidLabMinutesError,
    InvalidNamePrefixError,
    InvalidTrackIdError,
    InvalidTrackNameError,
)
from sandyard.broker.queue.errors import InvalidPreferError, InvalidPriorityError
from sandyard.broker.queue.model import URGENCY
from sandyard.kit.errors import InvalidError
from sandyard.kit.http.requests import RawHeaders, values_of
from sandyard.kit.patterns import pattern

TRACK_ID = pattern(r"^[A-Za-z0-9._:-]{1,128}$", "must be 1 to 128 letters, digits, ., _, : and -")
IDEMPOTENCY_KEY = pattern(r"^[!-~]{1,128}$", "must be 1 to 128 ASCII characters, without spaces")
PRINTABLE = pattern(
    r"^[!-~]([ -~]{0,126}[!-~])?$", "must be 1 to 128 ASCII characters, with no space at its ends"
)
WAIT = pattern(r"^wait=[0-9]{1,6}$", "must be wait= and whole seconds, such as wait=60")
PRIORITY = pattern(r"^u=[0-7](, ?i)?$", "must be u= and an urgency from 0 to 7")
MINUTES = pattern(r"^[1-9][0-9]{0,5}$", "must be a whole number of minutes, from 1 on")

_track_id, _idempotency_key, _printable, _minutes = (
    re.compile(form.replace("$", r"\Z").encode())
    for form in (TRACK_ID, IDEMPOTENCY_KEY, PRINTABLE, MINUTES)
)
_KEY = (b"idempotency-key", _idempotency_key, InvalidIdempotencyKeyError)
_NAME_PREFIX = (b"x-sandbox-name-prefix", _printable, InvalidNamePrefixError)
_OF_TRACKS = frozenset(
    {
        *(b"x-track-id", b"x-instruqt-sandbox-id", b"idempotency-key", b"x-sandbox-name-prefix"),
        *(b"x-instruqt-track-id", b"x-lab-minutes", b"priority"),
    }
)
Sent = Mapping[bytes, Sequence[bytes]]
"""The values of each header."""
_seconds = re.compile(rb"[0-9]{1,6}\Z")
_urgency = re.compile(rb"u=([0-7])(?:, ?i)?\Z")


class TrackHeaders(NamedTuple):
    track_id: str
    idempotency_key: str | None
    name_prefix: str
    track_name: str | None
    lab_minutes: int | None
    urgency: int

    @property
    def lease_key(self) -> tuple[str, str]:
        return self.track_id, self.idempotency_key or self.track_id


def read_track_id(headers: RawHeaders) -> str:
    """`X-Track-ID`, or its alias `X-Instruqt-Sandbox-ID`, which wins if both are sent."""
    return _track_id_of(_by_name(headers))


def read_track_headers(headers: RawHeaders) -> TrackHeaders:
    sent = _by_name(headers)
    minutes = _one(sent, b"x-lab-minutes", _minutes, InvalidLabMinutesError)
    return TrackHeaders(
        track_id=_track_id_of(sent),
        idempotency_key=_one(sent, *_KEY),
        name_prefix=_one(sent, *_NAME_PREFIX) or "",
        track_name=_one(sent, b"x-instruqt-track-id", _printable, InvalidTrackNameError),
        lab_minutes=None if minutes is None else int(minutes),
        urgency=_urgency_of(sent),
    )


def read_wait(headers: RawHeaders, *, longest_sec: float) -> float | None:
    """The caller's preferred wait in seconds (RFC 7240), up to the maximum; None if not given.
    Other preferences are ignored."""
    values = values_of(headers, b"prefer")
    pairs = [each.strip().partition(b"=") for value in values for each in value.split(b",")]
    waits = [value for name, _, value in pairs if name.lower() == b"wait"]
    if not waits:
        return None
    if len(waits) > 1 or not _seconds.match(waits[0]):
        raise InvalidPreferError(details={"header": "prefer"})
    return min(int(waits[0]), longest_sec)


def _by_name(headers: RawHeaders) -> Sent:
    """The headers of tracks, in one pass."""
    sent: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        if name in _OF_TRACKS:
            sent.setdefault(name, []).append(value)
    return sent


def _track_id_of(sent: Sent) -> str:
    alias = _one(sent, b"x-instruqt-sandbox-id", _track_id, InvalidTrackIdError)
    if alias is not None:
        return alias
    track_id = _one(sent, b"x-track-id", _track_id, InvalidTrackIdError)
    if track_id is None:
        raise InvalidTrackIdError
    return track_id


def _urgency_of(sent: Sent) -> int:
    """The urgency of `Priority` (RFC 9218)."""
    values = sent.get(b"priority")
    if not values:
        return URGENCY
    matched = _urgency.match(values[0])
    if matched is None or len(values) > 1:
        raise InvalidPriorityError(details={"header": "priority"})
    return int(matched[1])


def read_name_prefix(headers: RawHeaders) -> str:
    return _one(_by_name(headers), *_NAME_PREFIX) or ""


def read_idempotency_key(headers: RawHeaders) -> str | None:
    return _one(_by_name(headers), *_KEY)


def _one(sent: Sent, name: bytes, form: re.Pattern[bytes], error: type[InvalidError]) -> str | None:
    values = sent.get(name)
    if not values:
        return None
    if len(values) > 1 or not form.match(values[0]):
        raise error(details={"header": name.decode()})
    return values[0].decode()

"""The headers that tracks send, read and validated in one place."""

import re
from dataclasses import dataclass

from sandyard.broker.errors import (
    InvalidIdempotencyKeyError,
    InvalidNamePrefixError,
    InvalidTrackIdError,
    InvalidTrackNameError,
)
from sandyard.kit.errors import InvalidError
from sandyard.kit.http import RawHeaders, values_of
from sandyard.kit.patterns import pattern

TRACK_ID = pattern(r"^[A-Za-z0-9._:-]{1,128}$", "must be 1 to 128 letters, digits, ., _, : and -")
IDEMPOTENCY_KEY = pattern(r"^[!-~]{1,128}$", "must be 1 to 128 ASCII characters, without spaces")
PRINTABLE = pattern(
    r"^[!-~]([ -~]{0,126}[!-~])?$", "must be 1 to 128 ASCII characters, with no space at its ends"
)

_track_id, _idempotency_key, _printable = (
    re.compile(form.replace("$", r"\Z").encode()) for form in (TRACK_ID, IDEMPOTENCY_KEY, PRINTABLE)
)


@dataclass(frozen=True, slots=True)
class TrackHeaders:
    track_id: str
    idempotency_key: str | None
    name_prefix: str
    track_name: str | None


def read_track_id(headers: RawHeaders) -> str:
    """`X-Track-ID`, or its alias `X-Instruqt-Sandbox-ID`, which wins when both come."""
    alias = _one(headers, b"x-instruqt-sandbox-id", _track_id, InvalidTrackIdError)
    if alias is not None:
        return alias
    track_id = _one(headers, b"x-track-id", _track_id, InvalidTrackIdError)
    if track_id is None:
        raise InvalidTrackIdError
    return track_id


def read_track_headers(headers: RawHeaders) -> TrackHeaders:
    return TrackHeaders(
        track_id=read_track_id(headers),
        idempotency_key=_one(
            headers, b"idempotency-key", _idempotency_key, InvalidIdempotencyKeyError
        ),
        name_prefix=_one(headers, b"x-sandbox-name-prefix", _printable, InvalidNamePrefixError)
        or "",
        track_name=_one(headers, b"x-instruqt-track-id", _printable, InvalidTrackNameError),
    )


def _one(
    headers: RawHeaders, name: bytes, form: re.Pattern[bytes], error: type[InvalidError]
) -> str | None:
    values = values_of(headers, name)
    if not values:
        return None
    if len(values) > 1 or not form.match(values[0]):
        raise error(details={"header": name.decode()})
    return values[0].decode()

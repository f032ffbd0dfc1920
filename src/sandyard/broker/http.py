"""What the Broker's endpoints share: the headers of tracks, parameters, security requirements."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from fastapi import Depends, Header, Path, Query, Request

from sandyard.broker.pool.errors import (
    InvalidLabMinutesError,
    InvalidNamePrefixError,
    InvalidTrackIdError,
    InvalidTrackNameError,
)
from sandyard.broker.queue.errors import InvalidPreferError, InvalidPriorityError
from sandyard.broker.queue.model import URGENCY
from sandyard.kit.changes.events import actor
from sandyard.kit.errors import InvalidError
from sandyard.kit.http.routes import Check, GuardedRoutes, caller_of
from sandyard.kit.http.security import RawHeaders, SecurityScheme, secured_by, values_of
from sandyard.kit.idempotency import KEY_FORM, InvalidIdempotencyKeyError
from sandyard.kit.patterns import pattern

TRACK_ID = pattern(r"^[A-Za-z0-9._:-]{1,128}$", "must be 1 to 128 letters, digits, ., _, : and -")
PRINTABLE = pattern(
    r"^[!-~]([ -~]{0,126}[!-~])?$", "must be 1 to 128 ASCII characters, with no space at its ends"
)
WAIT = pattern(r"^wait=[0-9]{1,6}$", "must be wait= and whole seconds, such as wait=60")
PRIORITY = pattern(r"^u=[0-7](, ?i)?$", "must be u= and an urgency from 0 to 7")
MINUTES = pattern(r"^[1-9][0-9]{0,5}$", "must be a whole number of minutes, from 1 on")

_track_id, _idempotency_key, _printable, _minutes = (
    re.compile(form.replace("$", r"\Z").encode())
    for form in (TRACK_ID, KEY_FORM, PRINTABLE, MINUTES)
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


TRACK_TOKEN = SecurityScheme(
    "TrackToken",
    "A value of the setting `BROKER_API_TOKEN`; if it is not set, the content of "
    "`secrets/broker_api_token` in the data directory (`data` by default). Or the token of a "
    "client with the scope `allocate`, or an access token of the issuer with it.",
)
ADMIN_TOKEN = SecurityScheme(
    "AdminToken",
    "A value of the setting `BROKER_ADMIN_TOKEN`; if it is not set, the content of "
    "`secrets/broker_admin_token` in the data directory (`data` by default). Or the token of a "
    "client, or an access token of the issuer, with the scope `read`, `operate` or `admin`.",
)
_WHICH = "The `sandbox_id` that `allocate` returned"
SandboxId = Annotated[str, Path(description=_WHICH)]
Track = Annotated[str, Depends(caller_of)]
"""The calling track."""
TrackFilter = Annotated[
    str | None, Query(pattern=TRACK_ID, description="Only those leased to this track")
]
_Person = Annotated[
    str | None,
    Header(
        alias="X-Operator",
        pattern=TRACK_ID,
        description="Who acts, for the events, with a value of `BROKER_ADMIN_TOKEN`. A client "
        "appears by its own name.",
    ),
]


def _operator(request: Request, person: _Person = None) -> str:
    return actor("operator", request.state.client.client or person)


Operator = Annotated[str, Depends(_operator)]
"""The actor of an operator's change: a client by its name, or the person whom the console names."""
NameFilter = Annotated[str | None, Query(pattern=PRINTABLE, description="Prefix of the name")]


def operator_routes(
    path: str, check: Check, *, statuses: tuple[int, ...] = (401, 403, 503)
) -> GuardedRoutes:
    return GuardedRoutes(
        prefix=path,
        tag="operators",
        check=check,
        security=secured_by(ADMIN_TOKEN),
        statuses=statuses,
    )


def header(name: str, pattern: str, text: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "schema": {"type": "string", "pattern": pattern},
        "description": text,
    }


RETRY_KEY = header("Idempotency-Key", KEY_FORM, "Tells a retry from a new request")
SANDBOX_ID_PARAMETER = {
    "name": "sandbox_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "title": "Sandbox Id"},
    "description": _WHICH,
}
TRACK_PARAMETERS = [
    header(
        "X-Track-ID",
        TRACK_ID,
        "The track that calls. Required, once, unless `X-Instruqt-Sandbox-ID` is sent.",
    ),
    header(
        "X-Instruqt-Sandbox-ID",
        TRACK_ID,
        "Alias of `X-Track-ID`; wins when both are sent, and `X-Track-ID` is then not read.",
    ),
]
NAME_PREFIX = header("X-Sandbox-Name-Prefix", PRINTABLE, "Only a sandbox whose name begins so")
LEASE_KEY = header(
    "Idempotency-Key", KEY_FORM, "Tells a retry from a new request; default: the track id"
)
ALLOCATE_PARAMETERS = [
    LEASE_KEY,
    header("X-Sandbox-Name-Prefix", PRINTABLE, "Only sandboxes whose name has this prefix"),
    header("X-Instruqt-Track-ID", PRINTABLE, "The lab's label, stored with the lease"),
    header(
        "Prefer",
        WAIT,
        "`wait=60`: how many seconds the call may wait for a sandbox, up to `QUEUE_MAX_WAIT_SEC`",
    ),
    header(
        "Priority",
        PRIORITY,
        "`u=3`: with `Prefer`, the urgency; 0 is served first, 3 is the default",
    ),
    header(
        "X-Lab-Minutes",
        MINUTES,
        "How long the lease lasts, up to `LEASE_MAX_HOURS`; default: as the sandbox's lab",
    ),
]

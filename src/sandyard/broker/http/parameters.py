"""Parameters and security requirements that several of the Broker's endpoints share."""

from typing import Annotated, Any

from fastapi import Depends, Path, Query

from sandyard.broker.http.headers import (
    IDEMPOTENCY_KEY,
    MINUTES,
    PRINTABLE,
    PRIORITY,
    TRACK_ID,
    WAIT,
)
from sandyard.kit.http.direct import Check
from sandyard.kit.http.routes import GuardedRoutes, caller_of
from sandyard.kit.http.security import SecurityScheme, secured_by

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
NameFilter = Annotated[str | None, Query(pattern=PRINTABLE, description="Prefix of the name")]


def operator_routes(
    path: str, check: Check, *, statuses: tuple[int, ...] = (401, 403, 503)
) -> GuardedRoutes:
    """For endpoints of operators below this path."""
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


RETRY_KEY = header("Idempotency-Key", IDEMPOTENCY_KEY, "Tells a retry from a new request")
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
ALLOCATE_PARAMETERS = [
    header(
        "Idempotency-Key",
        IDEMPOTENCY_KEY,
        "Tells a retry from a new request; default: the track id",
    ),
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

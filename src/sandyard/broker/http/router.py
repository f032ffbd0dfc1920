"""Calls of tracks: allocate, give up, look."""

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Path, Request, Response

from sandyard.broker.http.headers import (
    IDEMPOTENCY_KEY,
    PRINTABLE,
    TRACK_ID,
    read_track_headers,
    read_track_id,
)
from sandyard.broker.http.schemas import LeaseAnswer, LeasedSandboxAnswer, MarkAnswer
from sandyard.broker.service import Broker
from sandyard.kit.direct import DirectRoute, JsonResponse
from sandyard.kit.http import BearerGuard, SecurityScheme, errors, secured_by

TRACK_TOKEN = SecurityScheme(
    "TrackToken",
    "A value of the setting `BROKER_API_TOKEN`; if it is not set, the content of "
    "`secrets/broker_api_token` in the data directory (`data` by default).",
)
_WHICH = "As `allocate` answered it"
SandboxId = Annotated[str, Path(description=_WHICH)]


def create_track_router(broker: Broker, guard: BearerGuard, *, prefix: str) -> APIRouter:
    router = APIRouter(prefix=prefix, tags=["tracks"])

    async def track(request: Request) -> str:
        guard.check(request)
        track_id = read_track_id(request.scope["headers"])
        request.state.log = {"track_id": track_id}
        return track_id

    Track = Annotated[str, Depends(track)]  # noqa: N806 - a type

    async def allocate_sandbox(request: Request) -> Response:
        guard.check(request)
        headers = read_track_headers(request.scope["headers"])
        about = {"track_id": headers.track_id, "action": "allocate"}
        request.state.log = about
        claimed = await broker.allocate(
            track_id=headers.track_id,
            idempotency_key=headers.idempotency_key,
            name_prefix=headers.name_prefix,
            track_name=headers.track_name,
        )
        about["sandbox_id"] = claimed.lease.sandbox_id
        return JsonResponse(orjson.dumps(claimed.lease), 201 if claimed.is_new else 200)

    router.add_api_route(
        "/allocate",
        allocate_sandbox,
        methods=["POST"],
        summary="Lease a sandbox",
        description=(
            "One sandbox for this track and key. A repeat answers the same lease with 200, also "
            "when nothing is free, as long as the lease is live."
        ),
        status_code=201,
        response_class=Response,
        responses={
            201: {"model": LeaseAnswer, "description": "A new lease"},
            200: {"model": LeaseAnswer, "description": "The live lease of this track and key"},
            **errors(401, 409, 429, 503),
        },
        openapi_extra=secured_by(
            TRACK_TOKEN, parameters=[*_TRACK_PARAMETERS, *_ALLOCATE_PARAMETERS]
        ),
        route_class_override=DirectRoute,
    )

    async def mark_sandbox_for_deletion(request: Request) -> Response:
        track_id = await track(request)
        sandbox_id = request.path_params["sandbox_id"]
        request.state.log |= {"sandbox_id": sandbox_id, "action": "mark_for_deletion"}
        marked = await broker.mark_for_deletion(track_id=track_id, sandbox_id=sandbox_id)
        return JsonResponse(orjson.dumps(marked))

    router.add_api_route(
        "/sandboxes/{sandbox_id}/mark-for-deletion",
        mark_sandbox_for_deletion,
        methods=["POST"],
        summary="Give a sandbox up",
        description="The track's own sandbox, within its window. Repeating it answers the same.",
        response_class=Response,
        responses={
            200: {"model": MarkAnswer, "description": "Given up, now or before"},
            **errors(401, 403, 404, 503),
        },
        openapi_extra=secured_by(
            TRACK_TOKEN, parameters=[_SANDBOX_ID_PARAMETER, *_TRACK_PARAMETERS]
        ),
        route_class_override=DirectRoute,
    )

    @router.get(
        "/sandboxes/{sandbox_id}",
        summary="Look at a sandbox of one's own",
        responses=errors(401, 403, 404, 503),
        openapi_extra=secured_by(TRACK_TOKEN, parameters=_TRACK_PARAMETERS),
    )
    async def get_leased_sandbox(
        request: Request, sandbox_id: SandboxId, track_id: Track
    ) -> LeasedSandboxAnswer:
        """Its state and window, for the track that has it or had it last."""
        request.state.log |= {"sandbox_id": sandbox_id, "action": "get"}
        found = await broker.get_sandbox(track_id=track_id, sandbox_id=sandbox_id)
        return LeasedSandboxAnswer.of(found)

    return router


def _header(name: str, pattern: str, text: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "schema": {"type": "string", "pattern": pattern},
        "description": text,
    }


_SANDBOX_ID_PARAMETER = {
    "name": "sandbox_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "title": "Sandbox Id"},
    "description": _WHICH,
}
_TRACK_PARAMETERS = [
    _header(
        "X-Track-ID",
        TRACK_ID,
        "The track that calls. Required, once, unless `X-Instruqt-Sandbox-ID` is sent.",
    ),
    _header(
        "X-Instruqt-Sandbox-ID",
        TRACK_ID,
        "Alias of `X-Track-ID`; wins when both are sent, and `X-Track-ID` is then not read.",
    ),
]
_ALLOCATE_PARAMETERS = [
    _header(
        "Idempotency-Key",
        IDEMPOTENCY_KEY,
        "Tells a retry from a new request; default: the track id",
    ),
    _header("X-Sandbox-Name-Prefix", PRINTABLE, "Only sandboxes whose name begins so"),
    _header("X-Instruqt-Track-ID", PRINTABLE, "The lab's label, kept with the lease"),
]

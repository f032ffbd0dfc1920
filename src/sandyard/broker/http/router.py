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
from sandyard.broker.http.schemas import LeaseAnswer, MarkAnswer, SandboxAnswer
from sandyard.broker.service import Broker
from sandyard.kit.http import BearerGuard, errors, opened_by

TRACK_TOKEN = "TrackToken"  # noqa: S105 - the name of a scheme
SandboxId = Annotated[str, Path(description="As `allocate` answered it")]


def create_track_router(broker: Broker, guard: BearerGuard, *, prefix: str) -> APIRouter:
    router = APIRouter(prefix=prefix, tags=["tracks"])

    async def track(request: Request) -> str:
        guard.check(request)
        track_id = read_track_id(request.scope["headers"])
        request.state.log = {"track_id": track_id}
        return track_id

    Track = Annotated[str, Depends(track)]  # noqa: N806 - a type

    async def allocate(request: Request) -> Response:
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
        return Response(
            orjson.dumps(claimed.lease),
            status_code=201 if claimed.is_new else 200,
            media_type="application/json",
        )

    router.add_api_route(
        "/allocate",
        allocate,
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
            **errors(400, 401, 409, 429, 503),
        },
        openapi_extra=opened_by(TRACK_TOKEN, [*_TRACK_PARAMETERS, *_ALLOCATE_PARAMETERS]),
    )

    @router.post(
        "/sandboxes/{sandbox_id}/mark-for-deletion",
        summary="Give a sandbox up",
        response_model=MarkAnswer,
        responses=errors(400, 401, 403, 404, 503),
        openapi_extra=opened_by(TRACK_TOKEN, _TRACK_PARAMETERS),
    )
    async def mark_for_deletion(request: Request, sandbox_id: SandboxId, track_id: Track) -> Any:
        """The track's own sandbox, within its window. Repeating it answers the same."""
        request.state.log |= {"sandbox_id": sandbox_id, "action": "mark_for_deletion"}
        return await broker.mark_for_deletion(track_id=track_id, sandbox_id=sandbox_id)

    @router.get(
        "/sandboxes/{sandbox_id}",
        summary="Look at a sandbox of one's own",
        response_model=SandboxAnswer,
        responses=errors(400, 401, 403, 404, 503),
        openapi_extra=opened_by(TRACK_TOKEN, _TRACK_PARAMETERS),
    )
    async def get_sandbox(request: Request, sandbox_id: SandboxId, track_id: Track) -> Any:
        """Its state and window, for the track that has it or had it last."""
        request.state.log |= {"sandbox_id": sandbox_id, "action": "get"}
        return SandboxAnswer.of(await broker.get_sandbox(track_id=track_id, sandbox_id=sandbox_id))

    return router


def _header(name: str, pattern: str, text: str, *, required: bool = False) -> dict[str, Any]:
    schema = {"type": "string", "pattern": pattern}
    return {
        "name": name,
        "in": "header",
        "required": required,
        "schema": schema,
        "description": text,
    }


_TRACK_PARAMETERS = [
    _header("X-Track-ID", TRACK_ID, "The track that calls", required=True),
    _header("X-Instruqt-Sandbox-ID", TRACK_ID, "Alias of X-Track-ID; wins when both are sent"),
]
_ALLOCATE_PARAMETERS = [
    _header("Idempotency-Key", IDEMPOTENCY_KEY, "Tells a retry from a new wish; default: track id"),
    _header("X-Sandbox-Name-Prefix", PRINTABLE, "Only sandboxes whose name begins so"),
    _header("X-Instruqt-Track-ID", PRINTABLE, "The lab's label, kept with the lease"),
]

"""Calls of tracks: allocate, release and read a sandbox."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Request, Response

from sandyard.broker.clients.guards import TrackGuard
from sandyard.broker.clients.model import ClientScope
from sandyard.broker.http.headers import read_track_headers, read_wait
from sandyard.broker.http.parameters import (
    ALLOCATE_PARAMETERS,
    SANDBOX_ID_PARAMETER,
    TRACK_PARAMETERS,
    TRACK_TOKEN,
    SandboxId,
)
from sandyard.broker.pool.http.schemas import LeaseAnswer, LeasedSandboxAnswer, MarkAnswer
from sandyard.broker.pool.model import Claimed, Lease
from sandyard.broker.pool.service import Broker
from sandyard.broker.queue.watch import Waiter
from sandyard.kit.errors import NotFoundError
from sandyard.kit.http.direct import DirectRoute, JsonResponse
from sandyard.kit.http.error_answers import errors
from sandyard.kit.http.on_demand import OnDemandRoute
from sandyard.kit.http.requests import noticing_disconnect
from sandyard.kit.http.security import secured_by

Claiming = Callable[..., Coroutine[Any, Any, Claimed]]


def create_track_router(
    broker: Broker, guard: TrackGuard, *, prefix: str, longest_wait_sec: float
) -> APIRouter:
    router = APIRouter(prefix=prefix, tags=["tracks"], route_class=OnDemandRoute)
    _add_allocate(router, broker, guard, longest_wait_sec)
    _add_release(router, broker, guard)
    _add_get(router, broker, guard)
    return router


def _add_allocate(
    router: APIRouter, broker: Broker, guard: TrackGuard, longest_wait_sec: float
) -> None:
    async def allocate_sandbox(request: Request) -> Response:
        caller = await guard.caller(request, ClientScope.ALLOCATE)
        headers = read_track_headers(request.scope["headers"])
        about = {"track_id": headers.track_id, "action": "allocate"}
        request.scope["state"]["log"] = about  # faster than `request.state`
        await guard.check_track(caller, headers.track_id)
        wait_sec = read_wait(request.scope["headers"], longest_sec=longest_wait_sec)
        claim = partial(
            broker.allocate,
            track_id=headers.track_id,
            idempotency_key=headers.idempotency_key,
            name_prefix=headers.name_prefix,
            track_name=headers.track_name,
            lab_minutes=headers.lab_minutes,
            urgency=headers.urgency,
            client=caller.client,
        )
        if wait_sec is not None:
            about["wait_sec"] = str(wait_sec)  # lets latency reports exclude these
            claim = partial(_wait, request, claim, wait_sec)
        if caller.max_leases is None:
            claimed = await claim()
        else:
            claimed = await guard.access.limited(caller, headers.lease_key, claim)
        about["sandbox_id"] = claimed.lease.sandbox_id
        return JsonResponse(_encoded(claimed.lease), 201 if claimed.is_new else 200)

    router.add_api_route(
        "/allocate",
        allocate_sandbox,
        methods=["POST"],
        summary="Lease a sandbox",
        description=(
            "Leases one sandbox to this track and key. A repeat returns the same lease with 200, "
            "as long as the lease is live. With `Prefer: wait=60` the call waits for a free "
            "sandbox; a retry keeps its position in the queue."
        ),
        status_code=201,
        response_class=Response,
        responses={
            201: {"model": LeaseAnswer, "description": "A new lease"},
            200: {"model": LeaseAnswer, "description": "The live lease of this track and key"},
            **errors(401, 403, 409, 429, 503),
        },
        openapi_extra=secured_by(TRACK_TOKEN, parameters=[*TRACK_PARAMETERS, *ALLOCATE_PARAMETERS]),
        route_class_override=DirectRoute,
    )


def _add_release(router: APIRouter, broker: Broker, guard: TrackGuard) -> None:
    async def mark_sandbox_for_deletion(request: Request) -> Response:
        track_id = await _track(guard, request)
        sandbox_id = request.path_params["sandbox_id"]
        request.state.log |= {"sandbox_id": sandbox_id, "action": "mark_for_deletion"}
        marked = await broker.mark_for_deletion(track_id=track_id, sandbox_id=sandbox_id)
        await give_back(request, track_id, sandbox_id)
        return JsonResponse(orjson.dumps(marked))

    async def give_back(request: Request, track_id: str, sandbox_id: str) -> None:
        """The lease no longer counts towards its client's limit."""
        caller = request.state.client
        if caller.max_leases is not None:
            with suppress(NotFoundError):
                row = await broker.get_sandbox(track_id=track_id, sandbox_id=sandbox_id)
                await guard.access.give_back(caller, (track_id, row.idempotency_key or track_id))

    router.add_api_route(
        "/sandboxes/{sandbox_id}/mark-for-deletion",
        mark_sandbox_for_deletion,
        methods=["POST"],
        summary="Release a sandbox",
        description="The track's own sandbox, while its lease is live. May be repeated.",
        response_class=Response,
        responses={
            200: {"model": MarkAnswer, "description": "Released, by this call or before"},
            **errors(401, 403, 404, 503),
        },
        openapi_extra=secured_by(TRACK_TOKEN, parameters=[SANDBOX_ID_PARAMETER, *TRACK_PARAMETERS]),
        route_class_override=DirectRoute,
    )


def _add_get(router: APIRouter, broker: Broker, guard: TrackGuard) -> None:
    Track = Annotated[str, Depends(partial(_track, guard))]  # noqa: N806 - a type

    @router.get(
        "/sandboxes/{sandbox_id}",
        summary="Get your sandbox",
        responses=errors(401, 403, 404, 503),
        openapi_extra=secured_by(TRACK_TOKEN, parameters=TRACK_PARAMETERS),
    )
    async def get_leased_sandbox(
        request: Request, sandbox_id: SandboxId, track_id: Track
    ) -> LeasedSandboxAnswer:
        """Its state and lease times, for the track that has it or had it last."""
        request.state.log |= {"sandbox_id": sandbox_id, "action": "get"}
        found = await broker.get_sandbox(track_id=track_id, sandbox_id=sandbox_id)
        return LeasedSandboxAnswer.of(found)


async def _track(guard: TrackGuard, request: Request) -> str:
    track_id = await guard.track(request)
    request.state.log = {"track_id": track_id}
    return track_id


def _encoded(lease: Lease) -> bytes:
    """Encoded by hand: orjson takes three times as long for a dataclass."""
    return orjson.dumps(
        {
            "sandbox_id": lease.sandbox_id,
            "name": lease.name,
            "external_id": lease.external_id,
            "allocated_at": lease.allocated_at,
            "expires_at": lease.expires_at,
        }
    )


async def _wait(request: Request, claim: Claiming, wait_sec: float) -> Claimed:
    waiter = Waiter()
    async with noticing_disconnect(request, waiter.leave):
        return await claim(wait_sec=wait_sec, waiter=waiter)

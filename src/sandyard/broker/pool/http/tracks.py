"""Calls of tracks: allocate, release, read, extend and replace a sandbox."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from sandyard.broker.clients.guards import TrackGuard
from sandyard.broker.clients.model import ClientScope
from sandyard.broker.http import (
    ALLOCATE_PARAMETERS,
    LEASE_KEY,
    NAME_PREFIX,
    RETRY_KEY,
    SANDBOX_ID_PARAMETER,
    TRACK_PARAMETERS,
    TRACK_TOKEN,
    SandboxId,
    Track,
    read_idempotency_key,
    read_name_prefix,
    read_track_headers,
    read_wait,
)
from sandyard.broker.pool.http.schemas import (
    ExtensionBody,
    LeaseAnswer,
    LeasedSandboxAnswer,
    MarkAnswer,
    ReasonBody,
)
from sandyard.broker.pool.lease_model import Extension, Replacement
from sandyard.broker.pool.leases import Leases
from sandyard.broker.pool.model import Claimed, Lease
from sandyard.broker.pool.service import Broker
from sandyard.broker.queue.service import Waiter
from sandyard.kit.errors import NotFoundError
from sandyard.kit.http.routes import DirectRoute, GuardedRoutes, JsonResponse
from sandyard.kit.http.schemas import errors
from sandyard.kit.http.security import noticing_disconnect, secured_by

Claiming = Callable[..., Coroutine[Any, Any, Claimed]]


def create_track_router(
    broker: Broker, leases: Leases, guard: TrackGuard, *, prefix: str, longest_wait_sec: float
) -> APIRouter:
    routes = GuardedRoutes(
        prefix=prefix,
        tag="tracks",
        check=guard.track,
        security=secured_by(TRACK_TOKEN, parameters=TRACK_PARAMETERS),
        statuses=(401, 403, 404, 503),
    )
    _add_allocate(routes.router, broker, guard, longest_wait_sec)
    _add_release(routes, broker, guard)
    _add_changes(routes, leases, guard)

    @routes.get("/sandboxes/{sandbox_id}", "Get your sandbox")
    async def get_leased_sandbox(
        request: Request, sandbox_id: SandboxId, track_id: Track
    ) -> LeasedSandboxAnswer:
        """Its state and lease times, for the track that has it or had it last."""
        request.state.log = {"track_id": track_id, "sandbox_id": sandbox_id, "action": "get"}
        found = await broker.get_sandbox(track_id=track_id, sandbox_id=sandbox_id)
        return LeasedSandboxAnswer.of(found)

    return routes.router


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
        claim = partial(broker.allocate, **headers._asdict(), client=caller.client)
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


def _add_release(routes: GuardedRoutes, broker: Broker, guard: TrackGuard) -> None:
    @routes.post(
        "/sandboxes/{sandbox_id}/mark-for-deletion",
        "Release a sandbox",
        answers={200: {"model": MarkAnswer, "description": "Released, by this call or before"}},
        described=secured_by(TRACK_TOKEN, parameters=[SANDBOX_ID_PARAMETER, *TRACK_PARAMETERS]),
        is_direct=True,
    )
    async def mark_sandbox_for_deletion(request: Request) -> Response:
        """The track's own sandbox, while its lease is live. If another one has replaced it, that
        one is released, and the response is about it. May be repeated."""
        track_id, sandbox_id = request.state.caller, request.path_params["sandbox_id"]
        about = {"track_id": track_id, "sandbox_id": sandbox_id, "action": "mark_for_deletion"}
        request.state.log = about
        marked = await broker.mark_for_deletion(track_id=track_id, sandbox_id=sandbox_id)
        if request.state.client.max_leases is not None:
            with suppress(NotFoundError):
                row = await broker.get_sandbox(track_id=track_id, sandbox_id=marked.sandbox_id)
                await give_back(request, (track_id, row.idempotency_key or track_id))
        return JsonResponse(orjson.dumps(marked))

    @routes.post(
        "/release",
        "Release a track's lease",
        described=secured_by(TRACK_TOKEN, parameters=[*TRACK_PARAMETERS, LEASE_KEY]),
    )
    async def release_lease(request: Request, track_id: Track) -> MarkAnswer:
        """Releases the sandbox that this track leased with this key, whichever it is now. May be
        repeated; 404 once the sandbox is deleted."""
        request.state.log = {"track_id": track_id, "action": "release"}
        key = read_idempotency_key(request.scope["headers"])
        released = await broker.release(track_id=track_id, idempotency_key=key)
        await give_back(request, (track_id, key or track_id))
        return MarkAnswer.of(released)

    async def give_back(request: Request, lease_key: tuple[str, str]) -> None:
        """The lease no longer counts towards its client's limit."""
        caller = request.state.client
        if caller.max_leases is not None:
            await guard.access.give_back(caller, lease_key)


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


def _add_changes(routes: GuardedRoutes, leases: Leases, guard: TrackGuard) -> None:
    @routes.post(
        "/sandboxes/{sandbox_id}/extend",
        "Extend a lease",
        409,
        described=secured_by(TRACK_TOKEN, parameters=[*TRACK_PARAMETERS, RETRY_KEY]),
    )
    async def extend_lease(
        request: Request, sandbox_id: SandboxId, body: ExtensionBody, track_id: Track
    ) -> LeaseAnswer:
        """Extends the track's own live lease, up to `LEASE_MAX_HOURS` in total. A repeat with the
        same key changes nothing and returns the lease."""
        request.state.log = {"track_id": track_id, "sandbox_id": sandbox_id, "action": "extend"}
        key = read_idempotency_key(request.scope["headers"])
        extension = Extension(track_id, body.minutes, key)
        return LeaseAnswer.of(await leases.extend(sandbox_id, extension))

    @routes.post(
        "/sandboxes/{sandbox_id}/replace",
        "Replace a broken sandbox",
        409,
        429,
        described=secured_by(TRACK_TOKEN, parameters=[*TRACK_PARAMETERS, NAME_PREFIX]),
    )
    async def replace_sandbox(
        request: Request, sandbox_id: SandboxId, body: ReasonBody, track_id: Track
    ) -> LeaseAnswer:
        """Returns another sandbox for the rest of the lease; the old one is held for an operator to
        inspect. 409 if none is free, 429 if the lease or its client has replaced too many; then
        nothing changes. A repeat returns the same."""
        request.state.log = {"track_id": track_id, "sandbox_id": sandbox_id, "action": "replace"}
        prefix = read_name_prefix(request.scope["headers"])
        caller = request.state.client
        wanted = Replacement(track_id, body.reason, prefix, caller.client)
        replace = partial(leases.replace, sandbox_id, wanted)
        return LeaseAnswer.of(
            await guard.access.limited_replacement(caller, track_id, sandbox_id, replace)
        )

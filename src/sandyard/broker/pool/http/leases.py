"""Calls of tracks about their lease."""

from typing import Annotated

from fastapi import APIRouter, Body, Request

from sandyard.broker.clients.guards import TrackGuard
from sandyard.broker.http.headers import (
    PRINTABLE,
    read_idempotency_key,
    read_name_prefix,
)
from sandyard.broker.http.parameters import (
    RETRY_KEY,
    TRACK_PARAMETERS,
    TRACK_TOKEN,
    SandboxId,
    Track,
    header,
)
from sandyard.broker.pool.extension_model import Extension
from sandyard.broker.pool.hold_model import Replacement
from sandyard.broker.pool.http.schemas import ExtensionBody, LeaseAnswer, ReasonBody
from sandyard.broker.pool.leases import Leases
from sandyard.kit.http.routes import GuardedRoutes
from sandyard.kit.http.security import secured_by

_NAMES = header("X-Sandbox-Name-Prefix", PRINTABLE, "Only a sandbox whose name begins so")


def create_lease_router(leases: Leases, guard: TrackGuard, *, prefix: str) -> APIRouter:
    routes = GuardedRoutes(
        prefix=f"{prefix}/sandboxes/{{sandbox_id}}",
        tag="tracks",
        check=guard.track,
        security=secured_by(TRACK_TOKEN, parameters=[*TRACK_PARAMETERS, RETRY_KEY]),
        statuses=(401, 403, 404, 409, 503),
    )

    @routes.post("/extend", "Extend a lease")
    async def extend_lease(
        request: Request,
        sandbox_id: SandboxId,
        body: Annotated[ExtensionBody, Body()],
        track_id: Track,
    ) -> LeaseAnswer:
        """Extends the track's own live lease, up to `LEASE_MAX_HOURS` in total. A repeat with the
        same key changes nothing and returns the lease."""
        request.state.log = {"track_id": track_id, "sandbox_id": sandbox_id, "action": "extend"}
        key = read_idempotency_key(request.scope["headers"])
        asked = Extension(track_id, body.minutes, key)
        return LeaseAnswer.of(await leases.extend(sandbox_id, asked))

    @routes.post(
        "/replace",
        "Replace a broken sandbox",
        described=secured_by(TRACK_TOKEN, parameters=[*TRACK_PARAMETERS, _NAMES]),
    )
    async def replace_sandbox(
        request: Request,
        sandbox_id: SandboxId,
        body: Annotated[ReasonBody, Body()],
        track_id: Track,
    ) -> LeaseAnswer:
        """Returns another sandbox for the rest of the lease; the old one is held for an operator to
        inspect. 409 if none is free, and nothing changes. A repeat returns the same."""
        request.state.log = {"track_id": track_id, "sandbox_id": sandbox_id, "action": "replace"}
        prefix = read_name_prefix(request.scope["headers"])
        asked = Replacement(track_id, body.reason, prefix, request.state.client.client)
        return LeaseAnswer.of(await leases.replace(sandbox_id, asked))

    return routes.router

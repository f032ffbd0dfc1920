"""Calls of tracks about the queue."""

from functools import partial
from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Request, Response

from sandyard.broker.clients.guards import TrackGuard
from sandyard.broker.http.headers import read_idempotency_key, read_track_headers
from sandyard.broker.pool.http.schemas import LeaseAnswer, TicketAnswer
from sandyard.broker.pool.http.tracks import ALLOCATE_PARAMETERS, TRACK_PARAMETERS, TRACK_TOKEN
from sandyard.broker.pool.model import Claimed
from sandyard.broker.pool.service import Broker
from sandyard.kit.http.direct import JsonResponse
from sandyard.kit.http.routes import GuardedRoutes, caller_of
from sandyard.kit.http.security import secured_by

Track = Annotated[str, Depends(caller_of)]


def create_queue_router(
    broker: Broker, guard: TrackGuard, *, prefix: str, ticket_ttl_sec: float
) -> APIRouter:
    asked = [each for each in ALLOCATE_PARAMETERS if each["name"] != "Prefer"]
    routes = GuardedRoutes(
        prefix=f"{prefix}/queue",
        tag="tracks",
        check=guard.track,
        security=secured_by(TRACK_TOKEN, parameters=[*TRACK_PARAMETERS, *asked]),
        statuses=(401, 403, 503),
    )

    @routes.post(
        "",
        "Lease a sandbox or queue for one",
        429,
        status_code=202,
        answers={
            200: {"model": LeaseAnswer, "description": "The live lease of this track and key"},
            201: {"model": LeaseAnswer, "description": "A new lease"},
            202: {
                "model": TicketAnswer,
                "description": "The ticket, with its position in the queue",
            },
        },
        response_class=Response,
    )
    async def queue_for_sandbox(request: Request) -> Response:
        """The same as `allocate` if a sandbox is free or reserved for this ticket; otherwise a
        ticket. Repeat the call with the same track and key at least every `ask_within_sec`, or the
        position is lost."""
        headers = read_track_headers(request.scope["headers"])
        request.state.log = {"track_id": headers.track_id, "action": "queue"}
        caller = request.state.client
        ask = partial(broker.queue, **headers._asdict(), client=caller.client)
        answer = await guard.access.limited(caller, headers.lease_key, ask)
        if isinstance(answer, Claimed):
            return JsonResponse(orjson.dumps(answer.lease), 201 if answer.is_new else 200)
        shown = TicketAnswer.of(answer, ask_within_sec=ticket_ttl_sec)
        return JsonResponse(orjson.dumps(shown.model_dump()), 202)

    @routes.delete("", "Leave the queue", 404, status_code=204)
    async def leave_queue(request: Request, track_id: Track) -> None:
        """Leaves the queue. A lease is not affected."""
        request.state.log = {"track_id": track_id, "action": "leave_queue"}
        key = read_idempotency_key(request.scope["headers"])
        await broker.leave_queue(track_id=track_id, idempotency_key=key)

    return routes.router

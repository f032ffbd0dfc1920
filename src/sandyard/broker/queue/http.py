"""Calls of tracks and of operators about the queue."""

from functools import partial
from typing import Annotated

import orjson
from fastapi import APIRouter, Path, Request, Response
from pydantic import Field

from sandyard.broker.clients.guards import AdminGuard, TrackGuard
from sandyard.broker.http import (
    ALLOCATE_PARAMETERS,
    TRACK_PARAMETERS,
    TRACK_TOKEN,
    Operator,
    Track,
    operator_routes,
    read_idempotency_key,
    read_track_headers,
)
from sandyard.broker.pool.http.schemas import LeaseAnswer
from sandyard.broker.pool.model import Claimed
from sandyard.broker.pool.service import Broker
from sandyard.broker.queue.service import Queue
from sandyard.kit.http.routes import GuardedRoutes, JsonResponse
from sandyard.kit.http.schemas import (
    AttributesAnswer,
    Documented,
    PageAnswer,
    Paging,
    StrictBody,
    eg,
)
from sandyard.kit.http.security import secured_by


class TicketAnswer(Documented):
    ticket_id: str = eg("0199a2b3c4d500000adf3f2c91")
    position: int = eg(4, description="1 is next; 0: a sandbox is reserved for it, call again")
    estimated_wait_sec: int | None = eg(
        90, description="Based on how fast the queue moved recently; null if it did not"
    )
    ask_within_sec: float = eg(60, description="Call again within this time to keep the position")
    message: str | None = eg(
        None,
        None,
        description="Says so if no sandbox of the pool has the requested prefix; else null",
    )


class WaitingTicketAnswer(AttributesAnswer):
    ticket_id: str = eg("0199a2b3c4d500000adf3f2c91")
    track_id: str = eg("track-7")
    idempotency_key: str = eg("track-7", validation_alias="key")
    urgency: int = eg(3, description="0 is served first, 7 last")
    name_prefix: str = eg("", description="Required prefix of the sandbox's name")
    client: str | None
    created_at: int = eg(1_793_350_800)
    asked_at: int = eg(1_793_350_830, description="When its track last called")
    sandbox_id: str | None = Field(
        description="The sandbox that is reserved for it; null while it waits"
    )


class WaitingTicketPage(PageAnswer):
    tickets: list[WaitingTicketAnswer]
    next_cursor: str | None


class TicketChanges(StrictBody):
    urgency: int = eg(0, ge=0, le=7, description="0 is served first, 7 last")


def create_queue_router(
    broker: Broker, guard: TrackGuard, *, prefix: str, ticket_ttl_sec: float
) -> APIRouter:
    parameters = [each for each in ALLOCATE_PARAMETERS if each["name"] != "Prefer"]
    routes = GuardedRoutes(
        prefix=f"{prefix}/queue",
        tag="tracks",
        check=guard.track,
        security=secured_by(TRACK_TOKEN, parameters=[*TRACK_PARAMETERS, *parameters]),
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
        shown = TicketAnswer(
            ticket_id=answer.ticket.ticket_id,
            position=answer.position,
            estimated_wait_sec=answer.estimated_wait_sec,
            ask_within_sec=ticket_ttl_sec,
            message=answer.message,
        )
        return JsonResponse(orjson.dumps(shown.model_dump()), 202)

    @routes.delete("", "Leave the queue", 404, status_code=204)
    async def leave_queue(request: Request, track_id: Track) -> None:
        """Leaves the queue. A lease is not affected."""
        request.state.log = {"track_id": track_id, "action": "leave_queue"}
        key = read_idempotency_key(request.scope["headers"])
        await broker.leave_queue(track_id=track_id, idempotency_key=key)

    return routes.router


def create_tickets_router(queue: Queue, guard: AdminGuard, *, prefix: str) -> APIRouter:
    routes = operator_routes(f"{prefix}/admin/queue", guard.require)
    ticket = Annotated[str, Path(description="The id from the list of waiting tickets")]

    @routes.get("", "List waiting tickets")
    async def list_waiting_tickets(paging: Paging) -> WaitingTicketPage:
        """Tickets in the order in which they will be served."""
        return WaitingTicketPage.of(await queue.page(**paging), WaitingTicketAnswer.of)

    @routes.patch("/{ticket_id}", "Move a ticket up or down", 404)
    async def move_ticket(
        request: Request, ticket_id: ticket, body: TicketChanges, operator: Operator
    ) -> WaitingTicketAnswer:
        """Tickets are served by urgency, then by age."""
        request.state.log = {"ticket_id": ticket_id, "action": "move_ticket"}
        return WaitingTicketAnswer.of(await queue.move(ticket_id, body.urgency, by=operator))

    @routes.delete("/{ticket_id}", "Drop a ticket", 404, status_code=204)
    async def drop_ticket(request: Request, ticket_id: ticket, operator: Operator) -> None:
        """Its track gets a new one at the end of the queue if it still calls."""
        request.state.log = {"ticket_id": ticket_id, "action": "drop_ticket"}
        await queue.drop(ticket_id, by=operator)

    return routes.router

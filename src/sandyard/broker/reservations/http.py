"""Calls of operators about reservations."""

from dataclasses import asdict
from typing import Annotated, Self

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field, StrictInt

from sandyard.broker import http
from sandyard.broker.clients.guards import AdminGuard
from sandyard.broker.reservations import model
from sandyard.broker.reservations.service import Reservations
from sandyard.kit.clock import Clock
from sandyard.kit.http import schemas
from sandyard.kit.http.security import secured_by
from sandyard.kit.patterns import NO_NUL

_Id = Annotated[str, Path(description="The id from the response that created it")]


class ReservationBody(schemas.StrictBody):
    count: Annotated[StrictInt, Field(ge=1, le=model.MOST_SANDBOXES), schemas.AS_JSON_HAS_IT] = (
        schemas.eg(300, description="Number of sandboxes")
    )
    track_prefix: str | None = schemas.eg(
        "k8s-intro-",
        None,
        pattern=http.TRACK_ID,
        description="For tracks with this prefix of their ids",
    )
    client: str | None = Field(
        None, pattern=http.TRACK_ID, description="For all tracks of this client instead"
    )
    name_prefix: str | None = Field(
        None, pattern=http.PRINTABLE, description="Only sandboxes whose name has this prefix"
    )
    from_: schemas.UnixSeconds | None = schemas.eg(
        1_793_350_800,
        None,
        alias="from",
        description="Unix seconds; start of the reservation. Default: now",
    )
    to: schemas.UnixSeconds = schemas.eg(
        1_793_365_200,
        description="Unix seconds; sandboxes that are not leased by then go back to the pool",
    )
    note: str = schemas.eg(
        "Kubernetes course, room 4", "", max_length=500, pattern=NO_NUL, description="For people"
    )

    @property
    def booking(self) -> model.Booking:
        return model.Booking(
            count=self.count,
            starts_at=self.from_,
            ends_at=self.to,
            track_prefix=self.track_prefix,
            client=self.client,
            name_prefix=self.name_prefix or "",
            note=self.note,
        )


class ReservationAnswer(schemas.Documented):
    reservation_id: str = schemas.eg("res-0199a2b3c4d500000adf3f2c91")
    status: Annotated[model.ReservationStatus, schemas.inline(model.ReservationStatus)] = (
        schemas.eg("pending", description="`pending`: it has begun, and some sandboxes are missing")
    )
    count: int = schemas.eg(300)
    kept: int = schemas.eg(280, description="Kept for it, or leased by its tracks")
    missing: int = schemas.eg(20, description="Will be kept for it as soon as the pool has them")
    track_prefix: str | None = schemas.eg("k8s-intro-")
    client: str | None
    name_prefix: str | None
    from_: int = schemas.eg(1_793_350_800, alias="from")
    to: int = schemas.eg(1_793_365_200)
    note: str = schemas.eg("Kubernetes course, room 4")
    created_at: int = schemas.eg(1_793_264_400)
    ended_at: int | None = Field(description="When the last unleased sandbox went back to the pool")

    @classmethod
    def of(cls, reservation: model.Reservation, now: int) -> Self:
        shown = {
            "status": reservation.status(now),
            "missing": reservation.missing,
            "name_prefix": reservation.name_prefix or None,
            "from": reservation.starts_at,
            "to": reservation.ends_at,
        }
        return cls.model_validate(asdict(reservation) | shown)


class ReservationPage(schemas.PageAnswer):
    reservations: list[ReservationAnswer]
    next_cursor: str | None


def create_reservation_router(
    reservations: Reservations, guard: AdminGuard, *, clock: Clock, prefix: str
) -> APIRouter:
    routes = http.operator_routes(
        f"{prefix}/admin/reservations", guard.require, statuses=(401, 503)
    )

    def now() -> int:
        return int(clock.now())

    @routes.post(
        "",
        "Reserve sandboxes",
        409,
        status_code=201,
        answers={200: {"model": ReservationAnswer, "description": "Made before by this key"}},
        described=secured_by(http.ADMIN_TOKEN, parameters=[http.RETRY_KEY]),
    )
    async def reserve_sandboxes(
        request: Request, response: Response, body: ReservationBody, operator: http.Operator
    ) -> ReservationAnswer:
        """From `from` on, this many sandboxes are kept for the named tracks: no other track can
        lease them. Missing ones are kept as soon as sandboxes become free. 409 with `possible` if
        the pool is too small."""
        key = http.read_idempotency_key(request.scope["headers"])
        found, is_new = await reservations.reserve(body.booking, key=key, by=operator)
        request.state.log = {"action": "reserve", "reservation_id": found.reservation_id}
        if not is_new:
            response.status_code = 200
        return ReservationAnswer.of(found, now())

    @routes.get("", "List reservations")
    async def list_reservations(
        paging: schemas.Paging,
        from_: Annotated[
            int,
            Query(
                alias="from",
                ge=0,
                le=schemas.LATEST,
                description="Only reservations that end after this time",
            ),
        ] = 0,
        to: Annotated[
            int,
            Query(
                ge=0, le=schemas.LATEST, description="Only reservations that begin before this time"
            ),
        ] = schemas.LATEST,
    ) -> ReservationPage:
        """Reservations that overlap this time, ordered by their ends. Times are Unix seconds. Pass
        `next_cursor` back as `cursor` until it is null."""
        page = await reservations.calendar(from_at=from_, to_at=to, **paging)
        at = now()
        return ReservationPage.of(page, lambda each: ReservationAnswer.of(each, at))

    @routes.get("/{reservation_id}", "Get a reservation", 404)
    async def get_reservation(reservation_id: _Id) -> ReservationAnswer:
        """Also after its end."""
        return ReservationAnswer.of(await reservations.get(reservation_id), now())

    @routes.delete("/{reservation_id}", "Cancel a reservation", 404)
    async def cancel_reservation(
        request: Request, reservation_id: _Id, operator: http.Operator
    ) -> ReservationAnswer:
        """Sandboxes that are not leased go back to the pool at once; leases continue. A reservation
        that has ended does not change."""
        request.state.log = {"action": "cancel", "reservation_id": reservation_id}
        cancelled = await reservations.cancel(reservation_id, by=operator)
        return ReservationAnswer.of(cancelled, now())

    return routes.router

"""Operators' calls for webhooks and their deliveries."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path
from pydantic import Field, StrictBool

from sandyard.broker.delivery.model import Webhook
from sandyard.broker.delivery.webhooks import Webhooks
from sandyard.broker.http import Operator, operator_routes
from sandyard.kit.http.routes import Check, GuardedRoutes
from sandyard.kit.http.schemas import (
    AttributesAnswer,
    Documented,
    PageAnswer,
    Paging,
    StrictBody,
    eg,
)
from sandyard.kit.patterns import NO_NUL, pattern

_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_URL = pattern(
    rf"^https?://[A-Za-z0-9._~-]+(:{_PORT})?(/[!-~]*)?$",
    "must be a URL such as https://hooks.example.com/sandyard, without a user name",
)
_KIND = pattern(
    r"^(\*|[a-z_]+(\.[a-z_]+)*(\.\*)?)$", "must be a kind such as lease.created, or lease.*"
)
_EVENT_ID = pattern(r"^[0-9a-f]{26}$", "must be an event's id: 26 hexadecimal digits")

WebhookId = Annotated[str, Path(description="The webhook's id, such as whk-…")]
_Url = Annotated[str, Field(max_length=2000, pattern=_URL, description="Where events are sent")]
_Kinds = Annotated[
    list[Annotated[str, Field(max_length=64, pattern=_KIND)]],
    Field(max_length=50, description="Kinds of events, such as `lease.*`; empty for all"),
]
_Note = Annotated[str | None, Field(max_length=200, pattern=NO_NUL, description="For people")]


class WebhookBody(StrictBody):
    url: _Url = eg("https://hooks.example.com/sandyard")
    kinds: _Kinds = eg(["lease.*"], [])
    note: _Note = eg(None, None)


class WebhookChanges(StrictBody):
    """Omitted fields do not change."""

    url: _Url | None = None
    kinds: _Kinds | None = None
    note: _Note = None
    is_enabled: StrictBool | None = eg(
        True, None, description="true: it continues where it stopped, as far as events are kept"
    )


class ReplayBody(StrictBody):
    event_id: str = eg(
        "01a3185c50000000012f9a4c1b",
        pattern=_EVENT_ID,
        description="The event's id, from a listing of events",
    )


class WebhookAnswer(Documented):
    webhook_id: str = eg("whk-3k9x0v7q2m5n8p1rt")
    url: str = eg("https://hooks.example.com/sandyard")
    kinds: list[str] = eg(["lease.*"])
    note: str | None
    is_enabled: bool = eg(True)
    disabled_reason: str | None = Field(description="Why it is disabled")
    created_at: datetime = eg("2026-11-16T12:00:00Z")

    @classmethod
    def of(cls, webhook: Webhook, **others: object) -> Self:
        shown = {"kinds": webhook.kind_list, "created_at": webhook.created_at_ms}
        return cls.model_validate(asdict(webhook) | shown | others)


class NewWebhookAnswer(WebhookAnswer):
    secret: str = eg(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=",
        description="Signs the requests; shown only once",
    )


class WebhookStreamAnswer(AttributesAnswer):
    part: str = eg("broker", description="The part of the events")
    failing_since: datetime | None = Field(validation_alias="failing_since_ms")
    last_error: str | None


class WebhookStatusAnswer(WebhookAnswer):
    streams: list[WebhookStreamAnswer]


class WebhookList(PageAnswer):
    webhooks: list[WebhookAnswer]
    next_cursor: str | None


class WebhookDeliveryAnswer(AttributesAnswer):
    event_id: str = eg("01a3185c50000000012f9a4c1b")
    kind: str = eg("lease.created")
    subject: str = eg("0b5e1f4e-5d6c-5a57-9f0f-6a1d3b6a9c11")
    at: datetime = eg("2026-11-16T12:00:01Z", validation_alias="at_ms")
    duration_ms: int = eg(42)
    status: int | None = eg(200, description="The receiver's status; null if there was no response")
    error: str | None = Field(description="null if it was delivered")


class WebhookDeliveryPage(PageAnswer):
    deliveries: list[WebhookDeliveryAnswer]
    next_cursor: str | None


def create_webhook_router(webhooks: Webhooks, check: Check, *, prefix: str) -> APIRouter:
    routes = operator_routes(f"{prefix}/admin/webhooks", check)

    @routes.post("", "Create a webhook", 409, status_code=201)
    async def create_webhook(body: WebhookBody, operator: Operator) -> NewWebhookAnswer:
        """It gets all events of all parts that are written from now on, at least once, in order per
        subject, signed as in Standard Webhooks."""
        webhook = await webhooks.create(url=body.url, kinds=body.kinds, note=body.note, by=operator)
        return NewWebhookAnswer.of(webhook)

    @routes.get("", "List webhooks")
    async def list_webhooks(paging: Paging) -> WebhookList:
        """By id, without their secrets."""
        return WebhookList.of(await webhooks.page(**paging), WebhookAnswer.of)

    @routes.get("/{webhook_id}", "Get a webhook", 404)
    async def get_webhook(webhook_id: WebhookId) -> WebhookStatusAnswer:
        """With the current error, if it fails."""
        webhook, streams = await webhooks.get(webhook_id)
        shown = [WebhookStreamAnswer.of(each) for each in streams]
        return WebhookStatusAnswer.of(webhook, streams=shown)

    @routes.patch("/{webhook_id}", "Change a webhook", 404)
    async def change_webhook(
        webhook_id: WebhookId, body: WebhookChanges, operator: Operator
    ) -> WebhookAnswer:
        """Takes effect in every process within seconds."""
        webhook = await webhooks.change(
            webhook_id,
            url=body.url,
            kinds=None if body.kinds is None else ",".join(body.kinds),
            note=body.note,
            is_enabled=body.is_enabled,
            by=operator,
        )
        return WebhookAnswer.of(webhook)

    @routes.delete("/{webhook_id}", "Delete a webhook", 404, status_code=204)
    async def delete_webhook(webhook_id: WebhookId, operator: Operator) -> None:
        """Deliveries stop within seconds."""
        await webhooks.delete(webhook_id, by=operator)

    _add_secret_and_deliveries(routes, webhooks)
    return routes.router


def _add_secret_and_deliveries(routes: GuardedRoutes, webhooks: Webhooks) -> None:
    @routes.post("/{webhook_id}/rotate-secret", "Rotate a webhook's secret", 404)
    async def rotate_webhook_secret(webhook_id: WebhookId, operator: Operator) -> NewWebhookAnswer:
        """Both secrets sign for a day, so that receivers can switch."""
        return NewWebhookAnswer.of(await webhooks.rotate_secret(webhook_id, by=operator))

    @routes.post("/{webhook_id}/replay", "Send an event again", 404, 409)
    async def replay_webhook_event(
        webhook_id: WebhookId, body: ReplayBody
    ) -> WebhookDeliveryAnswer:
        """Sends one event now, whatever the filter is, also to a disabled webhook."""
        return WebhookDeliveryAnswer.of(await webhooks.replay(webhook_id, body.event_id))

    @routes.get("/{webhook_id}/deliveries", "List a webhook's deliveries", 404)
    async def list_webhook_deliveries(webhook_id: WebhookId, paging: Paging) -> WebhookDeliveryPage:
        """The attempts of the last seven days, newest first."""
        page = await webhooks.attempts(webhook_id, **paging)
        return WebhookDeliveryPage.of(page, WebhookDeliveryAnswer.of)

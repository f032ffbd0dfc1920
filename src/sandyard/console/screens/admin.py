"""For operators: users, events and health of every part; the Broker's clients and webhooks."""

import asyncio
from typing import Any

from starlette.responses import Response

from sandyard.console.app import ConsoleRequest, Draw, actions, calling, operator_screen
from sandyard.console.forms import (
    ANY_TEXT,
    ANY_WORDS,
    INSTANT,
    TEXT,
    TEXT_OR_NONE,
    WHOLE_OR_NONE,
    Field,
)
from sandyard.kit.errors import NotFoundError

ADMIN = "/console/admin"
INTEGRATIONS = ADMIN + "/integrations"
SCOPES = ("allocate", "read", "operate", "admin")
_USER = "platform/admin/users/{account_id}"
_WEBHOOK = "broker/admin/webhooks/{webhook_id}"
CLIENT = {
    "scopes": Field(lambda form, _name: [each for each in SCOPES if f"scope_{each}" in form]),
    "track_prefix": TEXT,
    "rate": TEXT_OR_NONE,
    "max_leases": WHOLE_OR_NONE,
}
WEBHOOK = {"url": TEXT, "kinds": ANY_WORDS, "note": ANY_TEXT}
CHARGE = dict.fromkeys(("account_id", "service_type", "amount", "description"), TEXT)
_CLIENT = "broker/admin/clients/{name}"
_EVENTS = {
    "broker": "broker/admin/events",
    "telemetry": "telemetry/events",
    "platform": "platform/admin/events",
}
"""The Platform's include those of previews."""


async def _show(request: ConsoleRequest, *, notice: str | None = None) -> Response:
    users = None
    if request.signed_in.account is not None and request.wants("users"):
        filters = request.filters("q", "cursor")
        users = await request.api.get("platform/admin/users", limit=50, **filters)
    health = await request.console.check_health()
    return request.page("admin.html", users=users, health=health, notice=notice)


def _saying(notice: str) -> Draw:
    """The page, with this notice of what the call answered."""

    async def show(request: ConsoleRequest, *, answer: dict[str, Any]) -> Response:
        return await _show(request, notice=notice.format_map(answer))

    return show


async def _events(request: ConsoleRequest) -> Response:
    shown = [name for name in _EVENTS if _may_see(request, name)]
    part = request.query.get("part", shown[0])
    if part not in shown:
        raise NotFoundError("There is no such part.")
    filters = request.filters("kind", "subject", "actor", "cursor")
    page = await request.api.get(_EVENTS[part], limit=50, **filters)
    return request.page("admin_events.html", shown=shown, part=part, **page)


def _may_see(request: ConsoleRequest, part: str) -> bool:
    has_account = request.signed_in.account is not None
    return part in request.console.pages.parts and (part != "platform" or has_account)


async def _integrations(request: ConsoleRequest, *, made: dict[str, Any] | None = None) -> Response:
    """`made` is what was just created, with a token or a secret."""
    clients, webhooks = await asyncio.gather(
        _all_pages(request, "clients"), _all_pages(request, "webhooks")
    )
    return request.page(
        "integrations.html", clients=clients, webhooks=webhooks, scopes=SCOPES, made=made
    )


async def _all_pages(request: ConsoleRequest, what: str) -> list[Any]:
    page = await request.api.get(f"broker/admin/{what}", limit=100)
    found: list[Any] = page[what]
    while page["next_cursor"] is not None:
        page = await request.api.get(f"broker/admin/{what}", limit=100, cursor=page["next_cursor"])
        found += page[what]
    return found


async def _client(request: ConsoleRequest, *, made: dict[str, Any] | None = None) -> Response:
    """`made` is a token that was just created."""
    client = await request.api.get(_CLIENT)
    return request.page("client.html", client=client, scopes=SCOPES, made=made)


async def _deliveries(request: ConsoleRequest, *, made: dict[str, Any] | None = None) -> Response:
    """`made` is the webhook with a secret that was just created."""
    webhook, page = await asyncio.gather(
        request.api.get(_WEBHOOK), request.api.get(_WEBHOOK + "/deliveries", limit=50)
    )
    return request.page(
        "deliveries.html", webhook=webhook, deliveries=page["deliveries"], made=made
    )


async def _send_newest(request: ConsoleRequest) -> Response:
    newest = await request.api.get(_EVENTS["broker"], limit=1)
    if not newest["events"]:
        raise NotFoundError("There is no event yet to send.")
    body = {"event_id": newest["events"][0]["event_id"]}
    await request.api.post(_WEBHOOK + "/replay", body)
    return await _deliveries(request)


SCREENS = (
    operator_screen(ADMIN, _show),
    *actions(
        ADMIN + "/users/{account_id}",
        {
            "activate": calling(f"POST {_USER}/activate", _show),
            "deactivate": calling(f"POST {_USER}/deactivate", _show),
            "make-admin": calling(f"PUT {_USER}/role", _show, {"role": "admin"}),
            "make-user": calling(f"PUT {_USER}/role", _show, {"role": "user"}),
        },
        operators_of="broker",
    ),
    *actions(
        ADMIN,
        {
            "broadcast": calling(
                "POST platform/admin/notifications",
                _saying("Sent to {sent} accounts."),
                fields=dict.fromkeys(("title", "message", "type"), TEXT),
                shown="answer",
            ),
            "invite": calling(
                "POST platform/admin/invitations",
                _saying("The invitation is sent."),
                fields={"email": TEXT},
                shown="answer",
            ),
            "charge": calling(
                "POST platform/admin/billing/charges",
                _saying("{description}: {amount} {currency}."),
                fields=CHARGE,
                shown="answer",
            ),
            "bill": calling(
                "POST platform/admin/billing/run",
                _saying("Made {bills} bills of {usages} usages."),
                shown="answer",
            ),
            "end": calling(
                "POST platform/admin/sandboxes/{sandbox_id}/end",
                _saying("{name} is {status}."),
                fields={"reason": TEXT},
                shown="answer",
            ),
        },
        operators_of="broker",
    ),
    operator_screen(ADMIN + "/events", _events),
    operator_screen(INTEGRATIONS, _integrations),
    operator_screen(INTEGRATIONS + "/clients/{name}", _client),
    operator_screen(
        INTEGRATIONS + "/clients/{name}", calling(f"DELETE {_CLIENT}", _integrations), "DELETE"
    ),
    operator_screen(INTEGRATIONS + "/webhooks/{webhook_id}", _deliveries),
    operator_screen(
        INTEGRATIONS + "/webhooks/{webhook_id}",
        calling(f"DELETE {_WEBHOOK}", _integrations),
        "DELETE",
    ),
    *actions(
        INTEGRATIONS,
        {
            "clients": calling(
                "POST broker/admin/clients",
                _integrations,
                fields={**CLIENT, "name": TEXT, "expires_at": INSTANT},
                shown="made",
            ),
            "clients/{name}": calling(f"PUT {_CLIENT}", _client, fields=CLIENT),
            "clients/{name}/tokens": calling(
                f"POST {_CLIENT}/tokens", _client, fields={"expires_at": INSTANT}, shown="made"
            ),
            "clients/{name}/tokens/{token_id}/revoke": calling(
                f"DELETE {_CLIENT}/tokens/{{token_id}}", _client
            ),
            "webhooks": calling(
                "POST broker/admin/webhooks", _integrations, fields=WEBHOOK, shown="made"
            ),
            "webhooks/{webhook_id}": calling(f"PATCH {_WEBHOOK}", _deliveries, fields=WEBHOOK),
            "webhooks/{webhook_id}/enable": calling(
                f"PATCH {_WEBHOOK}", _deliveries, {"is_enabled": True}
            ),
            "webhooks/{webhook_id}/disable": calling(
                f"PATCH {_WEBHOOK}", _deliveries, {"is_enabled": False}
            ),
            "webhooks/{webhook_id}/rotate": calling(
                f"POST {_WEBHOOK}/rotate-secret", _deliveries, shown="made"
            ),
            "webhooks/{webhook_id}/newest": _send_newest,
            "webhooks/{webhook_id}/replay": calling(
                f"POST {_WEBHOOK}/replay", _deliveries, fields={"event_id": TEXT}
            ),
        },
        operators_of="broker",
    ),
)

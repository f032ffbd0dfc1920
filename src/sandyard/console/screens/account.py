"""An account: its profile, quotas, API keys, usage and bills, notifications and events."""

import asyncio
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from starlette.responses import JSONResponse, Response

from sandyard.console.app import LOGIN, ConsoleRequest, Screen, actions, calling
from sandyard.console.forms import INSTANT, TEXT, TEXT_OR_NONE

ACCOUNT = "/console/account"
QUOTA_NAMES = {
    "sandboxes": "Sandboxes that run",
    "cpu": "CPU cores in use",
    "memory_gb": "Memory in use (GB)",
    "storage_gb": "Storage, stopped or not (GB)",
    "previews": "Previews that run",
    "snapshot_bytes": "Snapshots",
    "file_bytes": "Files of projects",
    "images_total": "Images",
    "projects_total": "Projects",
    "templates_total": "Templates",
    "variables_total": "Variables",
    "volumes_total": "Volumes",
    "sandboxes_total": "Sandboxes, running or not",
}
SCOPES = ("read", "run", "admin")
KEY = {"name": TEXT, "description": TEXT_OR_NONE}
NEW_KEY = {**KEY, "scope": TEXT, "expires_at": INSTANT, "format": TEXT}
PROFILE = dict.fromkeys(("full_name", "spend_threshold"), TEXT_OR_NONE)
_SHOWN_COSTS = 10
"""How many sandboxes' costs of the month are shown, most expensive first; `bills.csv` has all."""


async def _show(request: ConsoleRequest, *, made: dict[str, Any] | None = None) -> Response:
    """`made` is a key that was just created."""
    api = request.api
    quota, keys, ssh_keys, address, month, boxes, notes = await asyncio.gather(
        api.get("platform/me/quota"),
        api.get("platform/api-keys", limit=100),
        api.get("platform/ssh-keys", limit=100),
        api.get("platform/ssh-keys/address"),
        api.get("platform/billing/month-to-date", by="sandbox"),
        api.get("platform/sandboxes", limit=100),
        api.get("platform/notifications", limit=20),
    )
    dearest = sorted(month["sums"], key=lambda each: Decimal(each["amount"]), reverse=True)
    return request.page(
        "account.html",
        quotas=quota["quotas"],
        quota_names=QUOTA_NAMES,
        keys=keys["api_keys"],
        ssh_keys=ssh_keys["ssh_keys"],
        ssh=address,
        month=month,
        names={each["sandbox_id"]: each["name"] for each in boxes["sandboxes"]},
        dearest=dearest[:_SHOWN_COSTS],
        notifications=notes["notifications"],
        scopes=SCOPES,
        made=made,
    )


async def _change_password(request: ConsoleRequest) -> Response:
    """Ends every login of the account, including this one."""
    form = await request.form()
    body = {name: form.get(name, "") for name in ("current_password", "new_password")}
    await request.api.post("platform/auth/password/change", body)
    return request.end_session(LOGIN)


async def _delete(request: ConsoleRequest) -> Response:
    password = (await request.form()).get("password", "")
    await request.api.post("platform/me/delete", {"password": password})
    return request.end_session(LOGIN + "?deleted=yes")


async def _chart(request: ConsoleRequest) -> Response:
    """Cost per day of the month; a bill's days are in UTC."""
    answer = await request.api.get("platform/billing/month-to-date", by="day")
    sums = {date.fromisoformat(each["key"][:10]): float(each["amount"]) for each in answer["sums"]}
    days = _month_up_to(max(sums)) if sums else []
    label = f"cost ({answer['currency']})"
    return JSONResponse(
        {
            "times": [datetime(*day.timetuple()[:3], tzinfo=UTC).timestamp() for day in days],
            "series": [{"label": label, "values": [sums.get(day, 0) for day in days]}],
            "daily": True,
        }
    )


def _month_up_to(last: date) -> list[date]:
    return [last.replace(day=number) for number in range(1, last.day + 1)]


async def _events(request: ConsoleRequest) -> Response:
    filters = request.filters("kind", "subject", "cursor")
    page = await request.api.get("platform/events", limit=50, **filters)
    return request.page("account_events.html", **page)


SCREENS = (
    Screen(ACCOUNT, _show),
    *actions(
        ACCOUNT,
        {
            "keys": calling("POST platform/api-keys", _show, fields=NEW_KEY, shown="made"),
            "keys/{key_id}": calling("PATCH platform/api-keys/{key_id}", _show, fields=KEY),
            "keys/{key_id}/activate": calling("POST platform/api-keys/{key_id}/activate", _show),
            "keys/{key_id}/deactivate": calling(
                "POST platform/api-keys/{key_id}/deactivate", _show
            ),
            "keys/{key_id}/delete": calling("DELETE platform/api-keys/{key_id}", _show),
            "ssh-keys": calling(
                "POST platform/ssh-keys", _show, fields=dict.fromkeys(("name", "public_key"), TEXT)
            ),
            "ssh-keys/{ssh_key_id}/delete": calling("DELETE platform/ssh-keys/{ssh_key_id}", _show),
            "password": _change_password,
            "delete": _delete,
            "profile": calling("PATCH platform/me", ACCOUNT, fields=PROFILE),
            "notifications/read": calling("POST platform/notifications/read-all", _show),
            "notifications/{notification_id}/delete": calling(
                "DELETE platform/notifications/{notification_id}", _show
            ),
        },
    ),
    Screen(ACCOUNT + "/chart", _chart),
    Screen(ACCOUNT + "/events", _events),
)

"""An account: its profile, quotas, API keys, usage and bills, notifications and events."""

import asyncio
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from starlette.responses import JSONResponse, Response

from sandyard.console.app import LOGIN, ConsoleRequest, Screen
from sandyard.console.forms import instant
from sandyard.kit.errors import NotFoundError

ACCOUNT = "/console/account"
QUOTA_NAMES = {
    "sandboxes": "Sandboxes that run",
    "cpu": "CPU cores in use",
    "memory_gb": "Memory in use (GB)",
    "previews": "Previews that run",
    "snapshot_bytes": "Snapshots",
    "file_bytes": "Files of projects",
    "projects_total": "Projects",
    "templates_total": "Templates",
    "variables_total": "Variables",
    "sandboxes_total": "Sandboxes, running or not",
}
SCOPES = ("read", "run", "admin")
_SHOWN_COSTS = 10
"""How many sandboxes' costs of the month are shown, most expensive first; `bills.csv` has all."""


def _platform(request: ConsoleRequest, path: str) -> str:
    return request.api.paths.platform + path


async def _show(request: ConsoleRequest, *, made: dict[str, Any] | None = None) -> Response:
    """`made` is a key that was just created."""
    api = request.api
    quota, keys, month, boxes, notes = await asyncio.gather(
        api.get(_platform(request, "/me/quota")),
        api.get(_platform(request, "/api-keys"), limit=100),
        api.get(_platform(request, "/billing/month-to-date"), by="sandbox"),
        api.get(_platform(request, "/sandboxes"), limit=100),
        api.get(_platform(request, "/notifications"), limit=20),
    )
    names = {each["sandbox_id"]: each["name"] for each in boxes["sandboxes"]}
    dearest = sorted(month["sums"], key=lambda each: Decimal(each["amount"]), reverse=True)
    return request.page(
        "account.html",
        quotas=quota["quotas"],
        quota_names=QUOTA_NAMES,
        keys=keys["api_keys"],
        month=month,
        names=names,
        dearest=dearest[:_SHOWN_COSTS],
        notifications=notes["notifications"],
        scopes=SCOPES,
        made=made,
    )


async def _make_key(request: ConsoleRequest) -> Response:
    form = await request.form()
    body = {name: form[name] for name in ("name", "scope", "expires_at") if name in form}
    if "expires_at" in body:
        body["expires_at"] = instant(form, "expires_at").isoformat()
    made = await request.api.post(_platform(request, "/api-keys"), body)
    return await _show(request, made=made)


async def _act_on_key(request: ConsoleRequest) -> Response:
    key_id, action = request.path_params["key_id"], request.path_params["action"]
    path = _platform(request, f"/api-keys/{key_id}")
    if action == "delete":
        await request.api.call("DELETE", path)
    elif action in ("activate", "deactivate"):
        await request.api.post(f"{path}/{action}")
    else:
        raise NotFoundError("There is no such action.")
    return await _show(request)


async def _change_password(request: ConsoleRequest) -> Response:
    """Ends every login of the account, including this one."""
    form = await request.form()
    body = {name: form.get(name, "") for name in ("current_password", "new_password")}
    await request.api.post(_platform(request, "/auth/password/change"), body)
    return request.end_session(LOGIN)


async def _delete(request: ConsoleRequest) -> Response:
    """Deletes the account with everything it has."""
    form = await request.form()
    body = {"password": form.get("password", "")}
    await request.api.post(_platform(request, "/me/delete"), body)
    return request.end_session(LOGIN + "?deleted=yes")


async def _change_profile(request: ConsoleRequest) -> Response:
    form = await request.form()
    body: dict[str, Any] = {"full_name": form.get("full_name")}
    body["spend_threshold"] = form.get("spend_threshold")
    await request.api.call("PATCH", _platform(request, "/me"), body=body)
    return request.redirect(ACCOUNT)


async def _read_all(request: ConsoleRequest) -> Response:
    await request.api.post(_platform(request, "/notifications/read-all"))
    return await _show(request)


async def _chart(request: ConsoleRequest) -> Response:
    """Cost per day of the month; a bill's days are in UTC."""
    answer = await request.api.get(_platform(request, "/billing/month-to-date"), by="day")
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
    query = request.query
    filters = {name: query.get(name) for name in ("kind", "subject", "cursor")}
    page = await request.api.get(_platform(request, "/events"), limit=50, **filters)
    return request.page("account_events.html", **page)


SCREENS = (
    Screen(ACCOUNT, _show),
    Screen(ACCOUNT + "/keys", _make_key, methods=("POST",)),
    Screen(ACCOUNT + "/keys/{key_id}/{action}", _act_on_key, methods=("POST",)),
    Screen(ACCOUNT + "/password", _change_password, methods=("POST",)),
    Screen(ACCOUNT + "/delete", _delete, methods=("POST",)),
    Screen(ACCOUNT + "/profile", _change_profile, methods=("POST",)),
    Screen(ACCOUNT + "/notifications/read", _read_all, methods=("POST",)),
    Screen(ACCOUNT + "/chart", _chart),
    Screen(ACCOUNT + "/events", _events),
)

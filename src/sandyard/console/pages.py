"""Renders pages and fragments from templates; all values are escaped."""

import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from sandyard.console.api import ApiError
from sandyard.console.assets import Assets
from sandyard.console.viewer import Viewer

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; frame-src 'self' {frames}; form-action 'self' {frames}; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_SUBJECTS = {
    ("broker", "lease"): "/console/labs/sandboxes/",
    ("broker", "sandbox"): "/console/labs/sandboxes/",
    ("telemetry", "device"): "/console/devices/",
    ("platform", "sandbox"): "/console/sandboxes/",
    ("platform", "project"): "/console/projects/",
    ("previews", "files"): "/console/projects/",
    ("previews", "preview"): "/console/projects/",
}
"""The page of an event's subject, by its part and the first word of its kind."""
_NOTHING = "\N{EN DASH}"
_SPANS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_UNITS = ("B", "kB", "MB", "GB", "TB")


class Pages:
    def __init__(
        self,
        assets: Assets,
        *,
        base_path: str,
        frames: str,
        parts: Mapping[str, str],
        currency: str = "USD",
        identity_provider: str | None = None,
    ) -> None:
        """`base_path` is the prefix that a proxy in front of the server adds to our paths; `frames`
        are the origins that pages may frame; `parts` are the available ones, each with its engine;
        `identity_provider` is the display name of the one that people may log in with."""
        self.parts = parts
        self._policy = _POLICY.format(frames=frames)
        self._base_path = base_path
        self._environment = Environment(
            loader=PackageLoader("sandyard.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            when=when, ago=ago, size=size, money=partial(money, currency), lasting=lasting
        )
        self._environment.globals.update(
            url=self.url,
            subject_url=self.subject_url,
            asset=lambda name: self.url(assets.path(name)),
            parts=parts,
            currency=currency,
            identity_provider=identity_provider,
        )

    def url(self, path: str) -> str:
        return self._base_path + path

    def subject_url(self, event: Mapping[str, Any]) -> str | None:
        """The page of the event's subject, if there is one."""
        path = _SUBJECTS.get((event["part"], event["kind"].partition(".")[0]))
        return None if path is None else self.url(path + quote(event["subject"], safe=""))

    def page(
        self,
        request: Request,
        template: str,
        viewer: Viewer | None,
        /,
        *,
        status_code: int = 200,
        **values: Any,
    ) -> HTMLResponse:
        """A whole page; or only its `<main>`, if htmx reloads a view."""
        is_part = "hx-request" in request.headers and "hx-boosted" not in request.headers
        text = self._environment.get_template(template).render(
            viewer=viewer,
            path=request.url.path,
            now_ms=int(time.time() * 1000),
            is_part=is_part,
            query=request.query_params,
            **values,
        )
        headers = {"Content-Security-Policy": self._policy, "Vary": "HX-Request"}
        return HTMLResponse(text, status_code, headers)

    def terminal(self, request: Request, viewer: Viewer, **values: Any) -> HTMLResponse:
        """The page of a terminal: xterm.js creates styles, which a nonce allows."""
        nonce = secrets.token_urlsafe(16)
        response = self.page(request, "terminal.html", viewer, nonce=nonce, **values)
        policy = self._policy.replace("style-src 'self'", f"style-src 'self' 'nonce-{nonce}'")
        response.headers["Content-Security-Policy"] = policy
        return response

    def error(self, request: Request, viewer: Viewer | None, error: ApiError) -> HTMLResponse:
        """An error page; for htmx, an alert on the current page."""
        response = self.page(request, "error.html", viewer, status_code=error.status, error=error)
        if "hx-request" in request.headers:
            response.headers["HX-Retarget"] = "#alerts"
            response.headers["HX-Reswap"] = "beforeend"
        return response


def when(value: str | float | None) -> Markup:
    """A time, which the page shows in its viewer's time zone. The Broker's are Unix seconds."""
    if not value:
        return Markup("&ndash;")
    at = (
        datetime.fromtimestamp(value, UTC)
        if isinstance(value, int | float)
        else datetime.fromisoformat(value)
    )
    iso = at.astimezone(UTC).isoformat(timespec="seconds")
    return Markup('<time datetime="{}">{} UTC</time>').format(iso, iso[:16].replace("T", " "))


def ago(value: str | float | None) -> Markup:
    """The same, shown as the time elapsed."""
    return Markup(str(when(value)).replace("<time ", "<time data-ago ", 1))  # noqa: S704


def lasting(seconds: float | None) -> str:
    """A duration in its two largest units, such as 3 h 20 min."""
    if seconds is None:
        return _NOTHING
    left, shown = round(seconds), list[str]()
    for unit, length in _SPANS:
        count, left = divmod(left, length)
        if count or (unit == "s" and not shown):
            shown.append(f"{count} {unit}")
    return " ".join(shown[:2])


def size(value: float | None) -> str:
    """In units of 1024: a GB is 2^30 bytes, as everywhere."""
    if value is None:
        return _NOTHING
    amount = float(value)
    for unit in _UNITS[:-1]:
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {_UNITS[-1]}"


def money(currency: str, value: str | float | None) -> Markup:
    if value is None:
        return Markup(_NOTHING)  # noqa: S704
    amount = f"{Decimal(str(value)):,.4f}"
    return Markup('<span>{} <span class="unit">{}</span></span>').format(amount, currency)

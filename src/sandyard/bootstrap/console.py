"""The console, wired to the server's API and to the parts' events."""

from collections.abc import Mapping, Sequence
from functools import partial
from urllib.parse import urlsplit

import orjson
from starlette.types import ASGIApp

from sandyard.bootstrap.other_logs import MainProcess, api_of_all_parts
from sandyard.bootstrap.registry import selected_parts
from sandyard.console.api import ApiPaths, OwnTokens
from sandyard.console.app import Console, PartHealth
from sandyard.console.assets import Assets
from sandyard.console.live import LiveChanges
from sandyard.console.operator_logins import OperatorLogins
from sandyard.console.pages import Pages
from sandyard.console.screens import (
    account,
    admin,
    devices,
    labs,
    login,
    overview,
    projects,
    sandboxes,
    templates,
    volumes,
)
from sandyard.console.session import Cookies
from sandyard.console.viewer import Viewers
from sandyard.kit.http.client_address import ClientAddress
from sandyard.kit.http.inner_calls import get
from sandyard.kit.rotation import AnyOf
from sandyard.platform.http import PREFIX
from sandyard.settings import Settings
from sandyard.wiring.part import Part

SCREENS = tuple(
    screen
    for screens in (
        *(overview, login, labs, sandboxes, templates, volumes),
        *(projects, devices),
        *(account, admin),
    )
    for screen in screens.SCREENS
)


def build_console(
    settings: Settings, parts: Sequence[Part], api: ASGIApp, *, main: MainProcess | None = None
) -> Console:
    """`main` is the process that serves the other parts, if there is one."""
    api = api_of_all_parts(api, main)
    logs = [part.events for part in parts if part.events is not None]
    engines = {spec.name: spec.engine_of(settings) for spec in selected_parts(settings)}
    paths = ApiPaths(platform=PREFIX, broker=settings.broker.api_base_path)
    tokens = OwnTokens(
        broker_admin=settings.secret("broker_admin_token"),
        broker_track=settings.secret("broker_api_token"),
        telemetry_admin=settings.secret("telemetry_admin_token"),
    )
    operators = AnyOf(tokens.broker_admin, tokens.telemetry_admin)
    assets = Assets()
    pages = Pages(
        assets,
        base_path=urlsplit(settings.platform.public_url or "").path.rstrip("/"),
        frames=_frames(settings),
        parts=engines,
        currency=settings.sandboxes.currency,
        identity_provider=urlsplit(settings.platform.oidc_issuer or "").hostname,
    )
    return Console(
        screens=SCREENS,
        pages=pages,
        assets=assets,
        cookies=Cookies(_secrets(settings, operators)),
        viewers=Viewers(api, paths, tokens),
        operator_logins=OperatorLogins(
            ClientAddress(settings.server.proxy_networks),
            failures_per_network=settings.platform.auth_rate_limit_per_account,
            storage_url=settings.broker.rate_limit_storage_url,
        ),
        live=LiveChanges([*logs, *(main.logs if main else ())]),
        check_health=partial(_health, api, engines),
    )


async def _health(api: ASGIApp, engines: Mapping[str, str]) -> Sequence[PartHealth]:
    _, body = await get(api, "/readyz")
    details = orjson.loads(body).get("error", {}).get("details") or {}
    troubles = details.get("parts", {})
    return [PartHealth(name, engine, troubles.get(name)) for name, engine in engines.items()]


def _secrets(settings: Settings, operators: Sequence[str]) -> Sequence[str]:
    """The same in all replicas, whichever parts they serve."""
    return operators if settings.platform.jwt_secret is None else settings.secret("jwt_secret")


def _frames(settings: Settings) -> str:
    """The origins of sandbox pages, which the console may frame."""
    domain = urlsplit(settings.sandboxes.sandbox_domain or "")
    return f"{domain.scheme}://*.{domain.netloc}" if domain.netloc else ""

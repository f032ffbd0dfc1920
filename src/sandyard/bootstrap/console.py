"""The console, wired to the API of the same process and to the parts' events."""

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from sandyard.console.api import ApiPaths, Credentials, OwnTokens
from sandyard.console.api_proxy import ApiProxy
from sandyard.console.app import Console
from sandyard.console.assets import Assets
from sandyard.console.health import PartHealth
from sandyard.console.live import LiveChanges
from sandyard.console.operator_logins import OperatorLogins
from sandyard.console.pages import Pages
from sandyard.console.screens import (
    account,
    admin,
    devices,
    integrations,
    lab_jobs,
    labs,
    login,
    login_oidc,
    overview,
    projects,
    reservations,
    sandboxes,
)
from sandyard.console.session import Cookies
from sandyard.console.viewer import Viewers
from sandyard.kit.errors import UnavailableError
from sandyard.kit.http.client_address import ClientAddress
from sandyard.kit.rotation import AnyOf
from sandyard.platform.wiring.shared import PREFIX
from sandyard.settings import Settings
from sandyard.wiring.part import Part

_CHECK_SEC = 2.0

SCREENS = tuple(
    screen
    for screens in (
        *(overview, login, login_oidc, reservations, lab_jobs, labs, sandboxes, projects, devices),
        *(account, admin, integrations),
    )
    for screen in screens.SCREENS
)


def build_console(settings: Settings, parts: Sequence[Part], api: ASGIApp) -> Console:
    credentials = Credentials(
        ApiPaths(platform=PREFIX, broker=settings.broker.api_base_path),
        OwnTokens(
            broker_admin=settings.secret("broker_admin_token"),
            broker_track=settings.secret("broker_api_token"),
            telemetry_admin=settings.secret("telemetry_admin_token"),
        ),
    )
    operators = AnyOf(
        settings.secret("broker_admin_token"), settings.secret("telemetry_admin_token")
    )
    assets = Assets()
    pages = Pages(
        assets,
        base_path=urlsplit(settings.platform.public_url or "").path.rstrip("/"),
        frames=_frames(settings),
        parts={part.name: part.engine for part in parts},
        currency=settings.sandboxes.currency,
        identity_provider=urlsplit(settings.platform.oidc_issuer or "").hostname,
    )
    return Console(
        SCREENS,
        pages=pages,
        assets=assets,
        cookies=Cookies(_secrets(settings, operators)),
        viewers=Viewers(api, credentials, operators),
        operator_logins=OperatorLogins(
            ClientAddress(settings.server.proxy_networks),
            failures_per_network=settings.platform.auth_rate_limit_per_account,
            storage_url=settings.broker.rate_limit_storage_url,
        ),
        api_proxy=ApiProxy(api, credentials),
        live=LiveChanges([part.events for part in parts if part.events is not None]),
        check_health=lambda: asyncio.gather(*map(_health, parts)),
    )


async def _health(part: Part) -> PartHealth:
    try:
        async with asyncio.timeout(_CHECK_SEC):
            await part.check()
            await part.check_writes()
    except UnavailableError as error:
        return PartHealth(part.name, part.engine, error.message)
    except TimeoutError:
        return PartHealth(part.name, part.engine, "It does not respond.")
    return PartHealth(part.name, part.engine, None)


def _secrets(settings: Settings, operators: Sequence[str]) -> Sequence[str]:
    """The same in all replicas, whichever parts they serve."""
    return operators if settings.platform.jwt_secret is None else settings.secret("jwt_secret")


def _frames(settings: Settings) -> str:
    """The origins of sandbox pages, which the console may frame."""
    domain = urlsplit(settings.sandboxes.sandbox_domain or "")
    return f"{domain.scheme}://*.{domain.netloc}" if domain.netloc else ""

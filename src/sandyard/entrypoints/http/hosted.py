"""The applications beside the API: the console, E2B's API and the gateway."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.types import ASGIApp, Scope

from sandyard.bootstrap.addresses import sandbox_domain
from sandyard.console.paths import is_for_console
from sandyard.e2b_api.hosts import E2bHosts
from sandyard.entrypoints.http.gateway_errors import GatewayErrors, names_host_below
from sandyard.entrypoints.http.middleware import CONSOLE, E2B, GATEWAY, HostedApp
from sandyard.kit.http.on_demand_app import OnDemandApp
from sandyard.settings import Settings
from sandyard.wiring.part import Part
from sandyard.wiring.spec import lazy

if TYPE_CHECKING:  # imported with the Platform, which uses most of it
    from sandyard.bootstrap.gateway import GatewayWired


class HostedApps:
    """Each is created on first use, or by `prepare`."""

    def __init__(self, settings: Settings, parts: Sequence[Part]) -> None:
        self._settings = settings
        self._parts = parts
        self._on_demand: list[OnDemandApp] = []
        domain = sandbox_domain(settings)
        self._e2b_hosts = E2bHosts(domain.name)
        self._is_for_sandbox = partial(names_host_below, domain)
        self._gateway = _gateway(settings, parts)

    @property
    def routers(self) -> Sequence[APIRouter]:
        """Routers that they add to the API."""
        return [] if self._gateway is None else [self._gateway.router]

    def have_host_of(self, scope: Scope) -> bool:
        """Whether the request names a host of E2B's API or of a sandbox."""
        return self._e2b_hosts.accepts(scope) or self._is_for_sandbox(scope)

    def apps(self, api: ASGIApp) -> Sequence[HostedApp]:
        """E2B's API uses a reserved port of each sandbox, so it is checked before the gateway."""
        build = lazy("sandyard.bootstrap.console:build_console")
        pages = self._added(OnDemandApp(partial(build, self._settings, self._parts, api)))
        console = HostedApp(is_for_console, GatewayErrors(pages), CONSOLE, has_own_headers=False)
        if self._gateway is None:
            return (console,)
        build = lazy("sandyard.bootstrap.e2b_api:build_e2b_api")
        options = {"hosts": self._e2b_hosts, "ports": self._gateway.app}
        e2b = self._added(OnDemandApp(partial(build, self._settings, self._parts, **options)))
        gateway = self._added(self._gateway.app)
        return (
            HostedApp(self._e2b_hosts.accepts, e2b, E2B),
            HostedApp(self._is_for_sandbox, GatewayErrors(gateway), GATEWAY),
            console,
        )

    async def prepare(self) -> None:
        """Create them all: no server needs them for its first responses."""
        for each in self._on_demand:
            await each.prepare()

    def _added(self, app: OnDemandApp) -> OnDemandApp:
        self._on_demand.append(app)
        return app


def _gateway(settings: Settings, parts: Sequence[Part]) -> "GatewayWired | None":
    """None if this process serves no sandboxes."""
    if not any(part.name == "platform" for part in parts):
        return None
    from sandyard.bootstrap.gateway import build_gateway

    return build_gateway(settings, parts)

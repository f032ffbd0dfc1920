"""The applications beside the API: the console, E2B's API, MCP and the gateway."""

from collections.abc import Sequence
from functools import partial

from fastapi import APIRouter
from starlette.types import ASGIApp, Scope

from sandyard.bootstrap.addresses import sandbox_domain
from sandyard.bootstrap.other_logs import MainProcess
from sandyard.console.paths import is_for_console
from sandyard.e2b_api.hosts import E2bHosts
from sandyard.entrypoints.http.gateway_errors import GatewayErrors, names_host_below
from sandyard.entrypoints.http.middleware import CONSOLE, E2B, GATEWAY, MCP, HostedApp
from sandyard.kit.http.on_demand import OnDemandApp
from sandyard.mcp.paths import is_for_mcp
from sandyard.settings import Settings
from sandyard.wiring.part import Part
from sandyard.wiring.spec import lazy


class HostedApps:
    """Each is created on first use, or by `prepare`."""

    def __init__(
        self, settings: Settings, parts: Sequence[Part], *, main: MainProcess | None = None
    ) -> None:
        """`main` is the process that serves the other parts, if there is one."""
        self._settings = settings
        self._main = main
        self._parts = parts
        self._on_demand: list[OnDemandApp] = []
        domain = sandbox_domain(settings)
        self._e2b_hosts = E2bHosts(domain.name)
        self._is_for_sandbox = partial(names_host_below, domain)
        self._gateway: OnDemandApp | None = None
        self.routers: Sequence[APIRouter] = ()
        """Routers that they add to the API."""
        if any(part.name == "platform" for part in parts):  # else it serves no sandboxes
            from sandyard.bootstrap.gateway import build_gateway

            self._gateway, tokens = build_gateway(settings, parts)
            self.routers = (tokens,)

    def have_host_of(self, scope: Scope) -> bool:
        return self._e2b_hosts.accepts(scope) or self._is_for_sandbox(scope)

    def apps(self, api: ASGIApp) -> Sequence[HostedApp]:
        """E2B's API uses a reserved port of each sandbox, so it is checked before the gateway."""
        build = lazy("sandyard.bootstrap.console:build_console")
        own = partial(build, self._settings, self._parts, api, main=self._main)
        pages = self._added(OnDemandApp(own))
        console = HostedApp(is_for_console, GatewayErrors(pages), CONSOLE, has_own_headers=False)
        if self._gateway is None:
            return (console,)
        build = lazy("sandyard.bootstrap.e2b_api:build_e2b_api")
        options = {"hosts": self._e2b_hosts, "ports": self._gateway}
        e2b = self._added(OnDemandApp(partial(build, self._settings, self._parts, **options)))
        gateway = self._added(self._gateway)
        build = lazy("sandyard.bootstrap.mcp:build_mcp")
        mcp = OnDemandApp(partial(build, self._settings, api, e2b, main=self._main))
        return (
            HostedApp(self._e2b_hosts.accepts, e2b, E2B),
            HostedApp(self._is_for_sandbox, GatewayErrors(gateway), GATEWAY),
            HostedApp(is_for_mcp, GatewayErrors(mcp), MCP),
            console,
        )

    async def prepare(self) -> None:
        """Create them all: no server needs them for its first responses."""
        for each in self._on_demand:
            await each.prepare()

    def _added(self, app: OnDemandApp) -> OnDemandApp:
        self._on_demand.append(app)
        return app

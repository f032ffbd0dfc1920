"""The gateway, wired to the sandboxes of the Platform and to previews."""

from collections.abc import Sequence

from fastapi import APIRouter
from starlette.types import ASGIApp

from sandyard.bootstrap.addresses import access_tokens, sandbox_domain
from sandyard.bootstrap.previews import PreviewsPart
from sandyard.gateway.http.router import create_tokens_router
from sandyard.gateway.tokens import TokenIssue
from sandyard.kit.http.client_address import ClientAddress
from sandyard.kit.http.on_demand import OnDemandApp
from sandyard.platform.access.guard import ACCOUNT_SECURITY
from sandyard.platform.access.sql import SqlCredentialLookup
from sandyard.platform.http import PREFIX
from sandyard.platform.sandboxes.network.gateway_targets import SandboxTargets
from sandyard.platform.wiring.part import PlatformPart
from sandyard.previews.gateway_targets import PreviewTargets
from sandyard.settings import Settings
from sandyard.wiring.part import Part
from sandyard.wiring.spec import get_part


def build_gateway(settings: Settings, parts: Sequence[Part]) -> tuple[OnDemandApp, APIRouter]:
    """The gateway and the endpoints for its tokens, for a process that serves sandboxes."""
    platform = get_part(parts, PlatformPart)
    previews = next((each for each in parts if isinstance(each, PreviewsPart)), None)
    targets: dict[str, SandboxTargets | PreviewTargets] = {"sbx": platform.wired.targets}
    if previews is not None:
        targets["prj"] = previews.targets
    domain, issued, clock = sandbox_domain(settings), access_tokens(settings), platform.clock
    credentials = SqlCredentialLookup(platform.database)
    router = create_tokens_router(
        TokenIssue(targets, credentials, issued, domain, clock=clock),
        platform.guard.runner,
        security=ACCOUNT_SECURITY,
        prefix=PREFIX,
        with_projects="prj" in targets,
    )

    def make() -> ASGIApp:
        from sandyard.gateway.access import GatewayAccess
        from sandyard.gateway.app import Gateway, GatewayLimits

        access = GatewayAccess(issued, credentials, domain, clock=clock)
        address = ClientAddress(settings.server.proxy_networks).of
        limits = GatewayLimits(
            timeout_sec=settings.sandboxes.gateway_timeout_sec,
            connections_per_target=settings.sandboxes.gateway_connections,
        )
        sites = None if previews is None else previews.sites
        return Gateway(targets, access, domain, limits, client_address=address, published=sites)

    return OnDemandApp(make), router

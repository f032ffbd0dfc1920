"""The tokens and addresses that give a caller access to a sandbox."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from sandyard.e2b_api.model import CLIENT_ID, ENVD_VERSION, SandboxView
from sandyard.e2b_api.sandboxes.networks import network_body
from sandyard.e2b_api.tokens import SandboxTokens
from sandyard.platform.access.principal import Principal, Scope


class TrafficTokens(Protocol):
    async def issue(self, sandbox_id: str, *, account_id: str) -> str:
        """A token for the ports of a sandbox that is not public."""
        ...


class SandboxAccess:
    def __init__(self, tokens: SandboxTokens, traffic: TrafficTokens, *, domain: str) -> None:
        self._tokens = tokens
        self._traffic = traffic
        self._domain = domain

    async def sandbox_body(self, view: SandboxView, *, by: Principal) -> Mapping[str, Any]:
        sandbox, traffic = view.sandbox, None
        if not sandbox.is_public:
            traffic = await self._traffic.issue(sandbox.sandbox_id, account_id=by.account_id)
        body = {
            "templateID": sandbox.template_id,
            "sandboxID": sandbox.sandbox_id,
            "clientID": CLIENT_ID,
            "envdVersion": ENVD_VERSION,
            "envdAccessToken": self._tokens.issue(sandbox.sandbox_id),
            "trafficAccessToken": traffic,
            "domain": self._domain,
        }
        return body if view.alias is None else body | {"alias": view.alias}

    def detailed(self, view: SandboxView, *, now: datetime, by: Principal) -> Mapping[str, Any]:
        """Callers with read access only get no token."""
        may_enter = by.scope.includes(Scope.RUN)
        token = self._tokens.issue(view.sandbox.sandbox_id) if may_enter else None
        network = network_body(view.sandbox)
        return view.detailed(now, domain=self._domain, token=token, network=network)

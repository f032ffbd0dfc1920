"""The parts that another process serves, as this process's own pages about all parts see them."""

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from sandyard.entrypoints.http.gateway_errors import GatewayErrors
from sandyard.entrypoints.http.middleware import TENANTS, HostedApp
from sandyard.kit.errors import UnavailableError
from sandyard.kit.http.inner_calls import get

_CHECK_SEC = 2.0
_OK = 200
_AWAY = "sandyard.away"
"""The key of the error in the scope of a request that could not be passed on."""


class OtherParts:
    """`app` passes a request on to their process; it raises UnavailableError if that is not
    possible. `engines` has the parts, each with the name of its engine."""

    def __init__(self, app: ASGIApp, engines: Mapping[str, str]) -> None:
        self.app = app
        self.engines = engines
        self.unavailable = HostedApp(_is_away, GatewayErrors(_refuse), TENANTS)
        """Answers the requests that could not be passed on."""

    async def find_troubles(self) -> Mapping[str, UnavailableError]:
        try:
            async with asyncio.timeout(_CHECK_SEC):
                status, body = await get(self.app, "/readyz")
        except TimeoutError:
            return dict.fromkeys(
                self.engines, UnavailableError("The tenants' process does not respond.")
            )
        except UnavailableError as error:
            return dict.fromkeys(self.engines, error)
        return {} if status == _OK else self._troubles(orjson.loads(body)["error"])

    def _troubles(self, error: Mapping[str, Any]) -> Mapping[str, UnavailableError]:
        """Those of a readiness response; while their process stops, all."""
        named = error.get("details", {}).get("parts")
        named = named or dict.fromkeys(self.engines, error["message"])
        return {part: UnavailableError(message) for part, message in named.items()}

    async def metrics(self, *, within_sec: float) -> bytes:
        """Their page of metrics; empty if it can't be had in time."""
        try:
            async with asyncio.timeout(within_sec):
                return (await get(self.app, "/metrics"))[1]
        except (TimeoutError, UnavailableError):
            return b""

    async def document(self) -> bytes:
        return (await get(self.app, "/openapi.json"))[1]


def note_away(scope: Scope, error: UnavailableError) -> None:
    """Have the request answered by `unavailable`."""
    scope[_AWAY] = error


def _is_away(scope: Scope) -> bool:
    return _AWAY in scope


async def _refuse(scope: Scope, _receive: Receive, _send: Send) -> None:
    raise scope[_AWAY]

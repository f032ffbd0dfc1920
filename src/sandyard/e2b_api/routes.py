"""Routes of the control API: path, authentication and handler."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from sandyard.e2b_api.errors import NotJsonError
from sandyard.platform.access.principal import Principal, Scope

Handler = Callable[[Request, Principal, str], Awaitable[Response]]
"""Called with the name in the path."""

MOST_LISTED = 100


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: re.Pattern[str]
    handler: Handler
    scope: Scope

    @classmethod
    def of(cls, method: str, path: str, handler: Handler, scope: Scope) -> "Route":
        return cls(method, re.compile(path), handler, scope)


def limit_of(request: Request) -> int:
    """Raises NotJsonError."""
    limit = request.query_params.get("limit", str(MOST_LISTED))
    if not (limit.isascii() and limit.isdigit()) or not 1 <= int(limit) <= MOST_LISTED:
        raise NotJsonError(f"`limit` must be a number from 1 to {MOST_LISTED}.")
    return int(limit)


def page_headers(following: str | None) -> dict[str, str]:
    return {"X-Next-Token": following} if following else {}

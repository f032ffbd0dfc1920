"""Unknown query parameters are refused instead of ignored."""

from collections import Counter
from collections.abc import Sequence
from functools import cache, partial
from urllib.parse import parse_qsl

from fastapi import params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from sandyard.kit.errors import RepeatedQueryParameterError, UnknownQueryParameterError

_SHOWN = 10
_SHOWN_CHARACTERS = 64


def refuse_unknown_parameters(route: APIRoute) -> None:
    """Make the route check the names in a query string before anything else. Done once for a route
    that is in two applications."""
    if "handle" in vars(route):
        return
    handle = route.handle
    accepted = cache(partial(accepted_parameters, route))

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["query_string"] and scope["method"] in (route.methods or ()):
            require_known_parameters(scope["query_string"], accepted=accepted())
        await handle(scope, receive, send)

    route.handle = checked  # type: ignore[method-assign]


def accepted_parameters(route: APIRoute) -> tuple[str, ...]:
    return tuple(
        field.alias
        for field in get_flat_params(route.dependant)
        if isinstance(field.field_info, params.Query)
    )


def require_known_parameters(query_string: bytes, *, accepted: Sequence[str]) -> None:
    """Raise unless each parameter is one of these and is sent once; no call takes lists."""
    sent = [name for name, _ in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True)]
    unknown = sorted(set(sent).difference(accepted))
    if unknown:
        names = [name[:_SHOWN_CHARACTERS] for name in unknown[:_SHOWN]]
        raise UnknownQueryParameterError(
            f"Unknown query parameter: {', '.join(names)}. "
            f"This call takes {', '.join(accepted) or 'none'}.",
            details={"unknown": names, "accepted": list(accepted)},
        )
    repeated = sorted(name for name, times in Counter(sent).items() if times > 1)
    if repeated:
        raise RepeatedQueryParameterError(
            f"Sent more than once: {', '.join(repeated)}. Send each query parameter once.",
            details={"repeated": repeated},
        )

"""Endpoints that share a security requirement."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sandyard.kit.http.direct import Check, DirectRoute, Endpoint, checked_first
from sandyard.kit.http.error_answers import errors
from sandyard.kit.http.on_demand import OnDemandRoute

Handler = TypeVar("Handler", bound=Callable[..., Any])


class Adding(Protocol):
    """Adds an endpoint; a decorator."""

    def __call__(self, handler: Handler, /) -> Handler: ...


class GuardedRoutes:
    """Adds endpoints to its router, each behind the same check.

    The check authenticates the caller before the body is read; handlers get its result from
    `caller_of`. A handler's name is its operation id in OpenAPI.
    """

    def __init__(
        self,
        *,
        prefix: str,
        tag: str,
        check: Check,
        security: Mapping[str, Any],
        statuses: tuple[int, ...] = (401, 503),
    ) -> None:
        """`security` is a security requirement from `secured_by`; `statuses` are the errors that
        each of the endpoints may return, besides those that any call may return."""
        self.router = APIRouter(prefix=prefix, tags=[tag], route_class=_checked_first(check))
        self._check = check
        self._security = security
        self._statuses = statuses

    def get(self, path: str, summary: str, *statuses: int, **options: Any) -> Adding:
        return self._adding("GET", path, summary, statuses, **options)

    def post(self, path: str, summary: str, *statuses: int, **options: Any) -> Adding:
        return self._adding("POST", path, summary, statuses, **options)

    def put(self, path: str, summary: str, *statuses: int, **options: Any) -> Adding:
        return self._adding("PUT", path, summary, statuses, **options)

    def patch(self, path: str, summary: str, *statuses: int, **options: Any) -> Adding:
        return self._adding("PATCH", path, summary, statuses, **options)

    def delete(self, path: str, summary: str, *statuses: int, **options: Any) -> Adding:
        return self._adding("DELETE", path, summary, statuses, **options)

    def _adding(
        self,
        method: str,
        path: str,
        summary: str,
        statuses: tuple[int, ...],
        *,
        answers: Mapping[int | str, dict[str, Any]] | None = None,
        described: Mapping[str, Any] | None = None,
        is_direct: bool = False,
        is_streamed: bool = False,
        **options: Any,
    ) -> Adding:
        """`answers` are documented in addition to the errors, `described` in addition to the
        security requirement; `is_direct` makes it a direct route, whose handler takes only the
        request; `is_streamed` makes it one that reads a body of any size as a stream."""
        options |= {
            "methods": [method],
            "summary": summary,
            "responses": {**(answers or {}), **errors(*self._statuses, *statuses)},
            "openapi_extra": {**self._security, **(described or {})},
        }
        if is_streamed:
            options["route_class_override"] = _checked_first(self._check, StreamedRoute)

            def add_streamed(handler: Handler) -> Handler:
                self.router.add_api_route(path, handler, **options)
                return handler

            return add_streamed
        if not is_direct:
            return self.router.api_route(path, **options)

        def add(handler: Handler) -> Handler:
            checked = checked_first(self._check, handler)
            options["route_class_override"] = DirectRoute
            self.router.add_api_route(path, checked, response_class=Response, **options)
            return handler

        return add


async def caller_of(request: Request) -> Any:
    """The result of a guarded route's check; a dependency."""
    return request.state.caller


def joined(*routers: APIRouter) -> APIRouter:
    """One router with the routes of all; an included router would be matched again for each
    request."""
    whole = APIRouter()
    whole.routes.extend(route for router in routers for route in router.routes)
    return whole


class StreamedRoute(OnDemandRoute):
    """Streams its body, with its own limits on the size and on the time between two chunks."""


def _checked_first(check: Check, kind: type[OnDemandRoute] = OnDemandRoute) -> type[OnDemandRoute]:
    class CheckedRoute(kind):  # type: ignore[valid-type, misc]
        def get_route_handler(self) -> Endpoint:
            return checked_first(check, super().get_route_handler())

    return CheckedRoute

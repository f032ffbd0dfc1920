"""The HTTP application: every part's routes behind one middleware and one error shape."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from sandyard import __version__
from sandyard.bootstrap.addresses import sandbox_domain
from sandyard.bootstrap.gateway import GatewayWired, build_gateway
from sandyard.bootstrap.part import Part
from sandyard.bootstrap.spec import lazy
from sandyard.console.paths import is_for_console
from sandyard.e2b_api.hosts import E2bHosts
from sandyard.entrypoints.answers import AnswerErrors, BodyLimits
from sandyard.entrypoints.docs_page import create_bare_app
from sandyard.entrypoints.errors import install_error_handlers
from sandyard.entrypoints.gateway import GatewayErrors
from sandyard.entrypoints.literal_paths import with_closed_paths
from sandyard.entrypoints.middleware import (
    CONSOLE,
    E2B,
    GATEWAY,
    Applications,
    HostedApp,
    InFlight,
    RequestMetrics,
    RequestMiddleware,
)
from sandyard.entrypoints.openapi import openapi_document
from sandyard.entrypoints.queries import refuse_unknown_parameters, require_known_parameters
from sandyard.entrypoints.websockets import WebSocketErrors
from sandyard.kit import ids
from sandyard.kit.direct import DirectRoute, DirectRoutes, Endpoint, JsonResponse
from sandyard.kit.errors import MetricsTokenError, UnauthorizedError, UnavailableError
from sandyard.kit.http import BearerGuard, SecurityScheme, errors, secured_by
from sandyard.kit.metrics import CONTENT_TYPE, Gauges, merged, render
from sandyard.kit.on_demand_app import OnDemandApp
from sandyard.kit.routes import StreamedRoute
from sandyard.settings import ServerSettings, Settings

_CHECK_SEC = 2
_METRICS_TOKEN = SecurityScheme(
    "MetricsToken",
    "A value of the setting `METRICS_TOKEN`. A server that listens on loopback alone needs none.",
)
_METRICS = secured_by(_METRICS_TOKEN)
_METRICS["security"].append({})  # without one, where that is open
_METRICS_ANSWER: dict[str, Any] = {
    "content": {
        "text/plain": {
            "schema": {"type": "string"},
            "example": "# HELP pool_available Sandboxes that are available\n"
            "# TYPE pool_available gauge\n"
            "pool_available 42.0\n",
        }
    }
}


def create_app(
    settings: Settings,
    parts: Sequence[Part],
    *,
    registry: CollectorRegistry,
    in_flight: InFlight,
    is_exposed: bool = False,
) -> FastAPI:
    """`is_exposed` if others than this machine reach it: `/metrics` then needs a token."""
    app = create_bare_app(
        title="Sandyard",
        version=__version__,
        summary="One control plane for short-lived environments.",
    )
    metrics = MetricsAccess(settings.secret("metrics_token"), is_open=not is_exposed)
    gateway = build_gateway(settings, parts)
    routers = [
        *(part.routers[0] for part in parts),
        create_operations_router(parts, registry, in_flight, metrics),
        *(router for part in parts for router in part.routers[1:]),
        *([] if gateway is None else [gateway.router]),
    ]
    # One flat list, the busiest first: an included router is matched again for every request.
    routes = [_document_route(app), *(route for router in routers for route in router.routes)]
    with_limits = partial(AnswerErrors, limits=_body_limits(settings.server))
    streamed = [route for route in routes if isinstance(route, StreamedRoute)]
    app.add_middleware(with_limits, streamed=streamed)
    if settings.server.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.server.allowed_origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key", "X-Request-ID"],
            expose_headers=["Date", "Retry-After", "X-Request-ID"],
        )
    install_error_handlers(app)
    for route in routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            refuse_unknown_parameters(route)
    app.router.routes[:0] = with_closed_paths(routes)
    # A browser on another site needs headers that only the ordinary way adds.
    direct = DirectRoutes(routes, with_origin=not settings.server.allowed_origins)
    api = app.build_middleware_stack()
    apps = Applications(api, direct, with_limits(direct), WebSocketErrors(api))
    console = _console(settings, parts, apps.call_api)
    app.state.on_demand = [console]
    apps = replace(apps, console=HostedApp(is_for_console, GatewayErrors(console), CONSOLE))
    if gateway is not None:
        hosts = E2bHosts(sandbox_domain(settings).name)
        e2b = _e2b(settings, parts, hosts, gateway.app)
        app.state.on_demand += [e2b, gateway.app]
        apps = replace(apps, hosted=_hosted(hosts, e2b, gateway))
    app.middleware_stack = RequestMiddleware(
        apps,
        metrics=RequestMetrics(registry),
        in_flight=in_flight,
        make_request_id=ids.request_id,
        send_request_id=settings.server.enable_request_id,
    )
    app.openapi = lambda: openapi_document(app)  # type: ignore[method-assign]
    return app


def _hosted(hosts: E2bHosts, e2b: ASGIApp, gateway: GatewayWired) -> Sequence[HostedApp]:
    """E2B's API has a port of each sandbox to itself, so it is asked first."""
    return [
        HostedApp(hosts.takes, e2b, E2B),
        HostedApp(gateway.takes, GatewayErrors(gateway.app), GATEWAY),
    ]


def _e2b(
    settings: Settings, parts: Sequence[Part], hosts: E2bHosts, gateway: ASGIApp
) -> OnDemandApp:
    build = lazy("sandyard.bootstrap.e2b_api:build_e2b_api")
    return OnDemandApp(partial(build, settings, parts, hosts=hosts, ports=gateway))


def _console(settings: Settings, parts: Sequence[Part], api: ASGIApp) -> OnDemandApp:
    build = lazy("sandyard.bootstrap.console:build_console")
    return OnDemandApp(partial(build, settings, parts, api))


async def prepare_on_demand(app: FastAPI) -> None:
    """Make what `create_app` has left out: what no server needs for its first answers."""
    for each in app.state.on_demand:
        await each.prepare()


def _body_limits(settings: ServerSettings) -> BodyLimits:
    return BodyLimits(
        settings.max_body_bytes,
        settings.body_timeout_sec,
        settings.max_upload_bytes,
        settings.upload_timeout_sec,
    )


def _document_route(app: FastAPI) -> BaseRoute:
    """The API's document, which is the same as long as the process lives. It takes a while to make
    it, and other requests go on meanwhile."""
    making = asyncio.Lock()

    @cache
    def encoded() -> bytes:
        return orjson.dumps(app.openapi())

    async def get_document(_request: Request) -> Response:
        async with making:
            return JsonResponse(await asyncio.to_thread(encoded))

    return DirectRoute("/openapi.json", get_document, methods=["GET"], include_in_schema=False)


def entry_of(app: FastAPI) -> ASGIApp:
    """What a server calls: the outermost middleware itself. FastAPI's own way to it looks through
    the environment for each request."""
    outermost = app.middleware_stack
    assert outermost is not None  # noqa: S101 - `create_app` has built it

    async def enter(scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = app
        await outermost(scope, receive, send)

    return enter


class MetricsAccess:
    """Who may read `/metrics`: holders of a token; without one, anybody where that is open."""

    def __init__(self, accepted: Sequence[str], *, is_open: bool) -> None:
        self._guard = BearerGuard(accepted)
        self._is_open = is_open and not accepted

    async def require(self, request: Request) -> None:
        try:
            if not self._is_open:
                await self._guard.require(request)
        except UnauthorizedError as error:
            raise MetricsTokenError from error


def create_operations_router(
    parts: Sequence[Part],
    registry: CollectorRegistry,
    in_flight: InFlight,
    metrics: MetricsAccess,
) -> APIRouter:
    """Alive, ready, and measured: the calls that load balancers and Prometheus make."""
    router = APIRouter(tags=["operations"])

    async def get_health(_request: Request) -> Response:
        return JsonResponse(b'{"status":"ok"}')

    async def get_readiness(_request: Request) -> Response:
        if in_flight.draining:
            raise UnavailableError("This process is stopping. Use another.", retry_after=1)
        await asyncio.gather(*(_require_ready(part) for part in parts))
        return JsonResponse(b'{"status":"ready"}')

    async def get_metrics(request: Request) -> Response:
        await metrics.require(request)
        return await metrics_response(parts, registry)

    for path, call, summary, answers, extra in (
        ("/healthz", get_health, "Is the process alive?", {200: _status("ok"), **errors()}, {}),
        (
            "/readyz",
            get_readiness,
            "Do its engines answer?",
            {200: _status("ready"), **errors(503)},
            {},
        ),
        (
            "/metrics",
            get_metrics,
            "Prometheus metrics",
            {200: _METRICS_ANSWER, **errors(401)},
            _METRICS,
        ),
    ):
        described: dict[int | str, dict[str, Any]] = {**answers}
        router.add_api_route(
            path,
            call,
            summary=summary,
            responses=described,
            openapi_extra=extra,
            response_class=Response,
            route_class_override=DirectRoute,
        )
        router.add_route(path, _without_query(call), methods=["HEAD"], include_in_schema=False)
    # The same as /healthz, by the name that many clients look for.
    health = _without_query(get_health)
    router.add_route("/health", health, methods=["GET"], include_in_schema=False)
    return router


def _status(word: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {"status": {"type": "string"}},
        "required": ["status"],
        "examples": [{"status": word}],
    }
    return {"content": {"application/json": {"schema": schema}}}


def _without_query(call: Endpoint) -> Endpoint:
    """The same for HEAD, which some load balancers ask with; the server leaves the body out."""

    async def answer(request: Request) -> Response:
        require_known_parameters(request.scope["query_string"], accepted=())
        return await call(request)

    return answer


async def metrics_response(parts: Sequence[Part], registry: CollectorRegistry) -> Response:
    return Response(render(registry, await read_gauges(parts)), media_type=CONTENT_TYPE)


async def read_gauges(parts: Sequence[Part]) -> Gauges:
    """Of all parts, read now; without those whose engine is away."""
    readings = await asyncio.gather(*(_gauges(part) for part in parts))
    clock = ("The time by this server's clock", time.time())
    return merged([*readings, {"sandyard_clock_timestamp_seconds": clock}])


async def _require_ready(part: Part) -> None:
    try:
        async with asyncio.timeout(_CHECK_SEC):
            await part.check()
            await part.check_writes()
    except (UnavailableError, TimeoutError) as error:
        raise UnavailableError(
            f"Not ready: the {part.name}'s {part.engine} engine. "
            + (error.message if isinstance(error, UnavailableError) else "It does not answer."),
            details={"engine": part.engine, "part": part.name},
            reason=getattr(error, "reason", None),
        ) from error


async def _gauges(part: Part) -> Gauges:
    try:
        async with asyncio.timeout(_CHECK_SEC):
            return await part.gauges()
    except (UnavailableError, TimeoutError):
        return {}  # an engine that is away has no counts; a zero would be a lie

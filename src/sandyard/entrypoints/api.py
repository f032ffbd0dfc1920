"""The HTTP application: every part's routes behind one middleware and one error shape."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi_offline import FastAPIOffline
from prometheus_client import CollectorRegistry
from starlette.middleware.cors import CORSMiddleware

from sandyard import __version__
from sandyard.bootstrap.part import Gauges, Part
from sandyard.entrypoints.errors import install_error_handlers
from sandyard.entrypoints.middleware import InFlight, RequestMetrics, RequestMiddleware
from sandyard.kit import ids
from sandyard.kit.errors import UnavailableError
from sandyard.kit.http import errors, security_schemes
from sandyard.kit.metrics import CONTENT_TYPE, render
from sandyard.settings import Settings

_CHECK_SEC = 2


def create_app(
    settings: Settings,
    parts: Sequence[Part],
    *,
    registry: CollectorRegistry,
    in_flight: InFlight,
) -> FastAPI:
    app = FastAPIOffline(  # /docs works without the internet too
        docs_url="/docs",
        redoc_url=None,
        static_url="/docs-assets",
        redirect_slashes=False,
        title="Sandyard",
        version=__version__,
        summary="One control plane for short-lived environments.",
    )
    app.add_middleware(
        RequestMiddleware,
        metrics=RequestMetrics(registry),
        in_flight=in_flight,
        make_request_id=ids.request_id,
        send_request_id=settings.server.enable_request_id,
        max_body_bytes=settings.server.max_body_bytes,
        body_timeout_sec=settings.server.body_timeout_sec,
    )
    if settings.server.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.server.allowed_origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key", "X-Request-ID"],
            expose_headers=["Date", "Retry-After", "X-Request-ID"],
        )
    install_error_handlers(app)
    routers = [
        *(part.routers[0] for part in parts),
        create_operations_router(parts, registry, in_flight),
        *(router for part in parts for router in part.routers[1:]),
    ]
    # One flat list, the busiest first: an included router is matched again for every request.
    app.router.routes[:0] = [route for router in routers for route in router.routes]
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def create_operations_router(
    parts: Sequence[Part], registry: CollectorRegistry, in_flight: InFlight
) -> APIRouter:
    """Alive, ready, and measured: the calls that load balancers and Prometheus make."""
    router = APIRouter(tags=["operations"])

    async def healthz() -> Response:
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def readyz() -> Response:
        if in_flight.draining:
            raise UnavailableError("This process is stopping. Use another.", retry_after=1)
        await asyncio.gather(*(_require_ready(part) for part in parts))
        return Response(b'{"status":"ready"}', media_type="application/json")

    async def metrics() -> Response:
        return await metrics_response(parts, registry)

    ok: dict[str, Any] = {"content": {"application/json": {"schema": _STATUS}}}
    text: dict[str, Any] = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    for path, call, summary, answers in (
        ("/healthz", healthz, "Is the process alive?", {200: ok, **errors()}),
        ("/readyz", readyz, "Do its engines answer?", {200: ok, **errors(503)}),
        ("/metrics", metrics, "Prometheus metrics", {200: text, **errors()}),
    ):
        described: dict[int | str, dict[str, Any]] = {**answers}
        router.add_api_route(
            path, call, summary=summary, responses=described, response_class=Response
        )
        router.add_route(path, _answering(call), methods=["HEAD"], include_in_schema=False)
    return router


def _answering(call: Callable[[], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """The same for HEAD, which some load balancers ask with; the server leaves the body out."""

    async def answer(_request: Request) -> Response:
        return await call()

    return answer


async def metrics_response(parts: Sequence[Part], registry: CollectorRegistry) -> Response:
    readings = await asyncio.gather(*(_gauges(part) for part in parts))
    gauges = {name: gauge for each in readings for name, gauge in each.items()}
    return Response(render(registry, gauges), media_type=CONTENT_TYPE)


async def _require_ready(part: Part) -> None:
    try:
        async with asyncio.timeout(_CHECK_SEC):
            await part.check()
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


_STATUS = {
    "type": "object",
    "properties": {"status": {"type": "string"}},
    "required": ["status"],
}


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document without the 422 that it adds to every call: malformed is a 400 here."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        document["components"]["securitySchemes"] = security_schemes(document)
        schemas = document["components"]["schemas"]
        schemas.pop("HTTPValidationError", None)
        schemas.pop("ValidationError", None)
        app.openapi_schema = document
    return app.openapi_schema

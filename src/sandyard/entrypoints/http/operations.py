"""Liveness, readiness and metrics: the calls of load balancers and Prometheus."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry

from sandyard.entrypoints.http.middleware import InFlight
from sandyard.entrypoints.http.other_parts import OtherParts
from sandyard.entrypoints.http.route_checks import require_known_parameters
from sandyard.kit.errors import MetricsTokenError, UnauthorizedError, UnavailableError
from sandyard.kit.http.routes import DirectRoute, Endpoint, JsonResponse
from sandyard.kit.http.schemas import errors
from sandyard.kit.http.security import BearerGuard, SecurityScheme, secured_by
from sandyard.kit.observability.metrics import (
    CONTENT_TYPE,
    Gauges,
    joined_pages,
    merged,
    render,
    render_own,
)
from sandyard.wiring.part import Part, find_trouble

_CHECK_SEC = 2
_SCRAPE_TIMEOUT = "X-Prometheus-Scrape-Timeout-Seconds"
_METRICS_TOKEN = SecurityScheme(
    "MetricsToken",
    "A value of the setting `METRICS_TOKEN`. A server that listens only on loopback needs none.",
)
_METRICS = secured_by(_METRICS_TOKEN)
_METRICS["security"].append({})  # no token needed where access is open
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


class MetricsAccess:
    """Who may read `/metrics`: holders of a token; without a configured token, anyone where access
    is open."""

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
    others: OtherParts | None = None,
    *,
    is_inner: bool = False,
) -> APIRouter:
    """`is_inner`: only the main process calls it, and joins the metrics to its own."""
    router = APIRouter(tags=["operations"])

    async def get_health(_request: Request) -> Response:
        return JsonResponse(b'{"status":"ok"}')

    async def get_readiness(_request: Request) -> Response:
        if in_flight.draining:
            raise UnavailableError("This process is stopping. Use another.", retry_after=1)
        await _require_ready(parts, others)
        return JsonResponse(b'{"status":"ready"}')

    async def get_metrics(request: Request) -> Response:
        await metrics.require(request)
        if is_inner:
            return Response(render_own(registry, await read_gauges(parts)))
        return await metrics_response(request, parts, registry, others)

    alive, ready = {200: _status("ok"), **errors()}, {200: _status("ready"), **errors(503)}
    measured = {200: _METRICS_ANSWER, **errors(401)}
    _add(router, "/healthz", get_health, "Is the process alive?", alive)
    _add(router, "/readyz", get_readiness, "Readiness: are the engines available?", ready)
    _add(router, "/metrics", get_metrics, "Prometheus metrics", measured, openapi_extra=_METRICS)
    # The same as /healthz, under a name that many clients expect.
    health = _without_query(get_health)
    router.add_route("/health", health, methods=["GET"], include_in_schema=False)
    return router


def _add(
    router: APIRouter,
    path: str,
    call: Endpoint,
    summary: str,
    answers: Mapping[int | str, dict[str, Any]],
    **options: Any,
) -> None:
    router.add_api_route(
        path,
        call,
        summary=summary,
        responses={**answers},
        response_class=Response,
        route_class_override=DirectRoute,
        **options,
    )
    router.add_route(path, _without_query(call), methods=["HEAD"], include_in_schema=False)


def _status(word: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {"status": {"type": "string"}},
        "required": ["status"],
        "examples": [{"status": word}],
    }
    return {"content": {"application/json": {"schema": schema}}}


def _without_query(call: Endpoint) -> Endpoint:
    """The same for HEAD, which some load balancers use; the server omits the body."""

    async def answer(request: Request) -> Response:
        require_known_parameters(request.scope["query_string"], accepted=())
        return await call(request)

    return answer


async def metrics_response(
    request: Request,
    parts: Sequence[Part],
    registry: CollectorRegistry,
    others: OtherParts | None = None,
) -> Response:
    within_sec = _time_for_engines(request)
    if others is None:
        gauges = await read_gauges(parts, within_sec=within_sec)
        return Response(render(registry, gauges), media_type=CONTENT_TYPE)
    gauges, page = await asyncio.gather(
        read_gauges(parts, within_sec=within_sec), others.metrics(within_sec=within_sec)
    )
    return Response(joined_pages(render(registry, gauges), page), media_type=CONTENT_TYPE)


def _time_for_engines(request: Request) -> float:
    """Half of Prometheus's scrape timeout, which it sends: a slow engine costs a scrape only the
    gauges that are read from it."""
    try:
        half_sec = float(request.headers.get(_SCRAPE_TIMEOUT, "")) / 2
    except ValueError:
        return _CHECK_SEC
    return half_sec if 0 < half_sec < _CHECK_SEC else _CHECK_SEC


async def read_gauges(parts: Sequence[Part], *, within_sec: float = _CHECK_SEC) -> Gauges:
    """The gauges of all parts, read now; without those of an engine that does not respond in
    time."""
    readings = await asyncio.gather(*(_from_engine(part, within_sec) for part in parts))
    clock = ("The time by this server's clock", time.time())
    own = [part.local_gauges() for part in parts]
    return merged([*own, *readings, {"sandyard_clock_timestamp_seconds": clock}])


async def find_troubles(
    parts: Sequence[Part], others: OtherParts | None = None
) -> dict[str, UnavailableError]:
    found, elsewhere = await asyncio.gather(
        asyncio.gather(*map(find_trouble, parts)), others.find_troubles() if others else _none()
    )
    own = {part.name: trouble for part, trouble in zip(parts, found, strict=True) if trouble}
    return own | dict(elsewhere)


async def _none() -> Mapping[str, UnavailableError]:
    return {}


async def _require_ready(parts: Sequence[Part], others: OtherParts | None) -> None:
    """Raise UnavailableError with every part that is not ready, and why."""
    troubles = await find_troubles(parts, others)
    if not troubles:
        return
    engines = {part.name: part.engine for part in parts} | dict(others.engines if others else {})
    named: dict[str, list[str]] = {}
    for part, trouble in troubles.items():
        owner = f"{part}'" if part.endswith("s") else f"{part}'s"
        named.setdefault(trouble.message, []).append(f"the {owner} {engines[part]} engine")
    first, reasons = next(iter(troubles)), {each.reason for each in troubles.values()}
    raise UnavailableError(
        "Not ready: " + " ".join(f"{', '.join(who)}. {why}" for why, who in named.items()),
        details={
            "engine": engines[first],
            "part": first,
            "parts": {part: trouble.message for part, trouble in troubles.items()},
        },
        reason="; ".join(sorted(filter(None, reasons))) or None,
    )


async def _from_engine(part: Part, within_sec: float) -> Gauges:
    try:
        async with asyncio.timeout(within_sec):
            return await part.gauges()
    except (UnavailableError, TimeoutError):
        return {}  # an unavailable engine has no counts; a zero would be wrong

"""Exports traces and metrics to a collector, for the life of a process."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from sandyard import __version__
from sandyard.entrypoints.http.operations import read_gauges
from sandyard.kit import ids
from sandyard.kit.observability import tracing
from sandyard.settings import OtelSettings, SettingsError
from sandyard.wiring.part import Part

if TYPE_CHECKING:  # imported only if a collector is configured
    from opentelemetry.sdk.resources import Resource

    from sandyard.kit.observability.tracing_otel import OtelTracing

_EXPORT_SEC = 3
"""The limit for one export, and so the longest that an absent collector delays shutdown."""


async def open_otlp(stack: AsyncExitStack, settings: OtelSettings) -> "Otlp | None":
    """Like `start_otlp`, until the stack is closed."""
    otlp = start_otlp(settings)
    if otlp is not None:
        stack.push_async_callback(otlp.close)
    return otlp


def start_otlp(settings: OtelSettings) -> "Otlp | None":
    """Trace everything built from now on. None if no collector is configured. Raises SettingsError
    if the SDK is not installed."""
    if settings.otel_exporter_otlp_endpoint is None:
        return None
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise SettingsError("OTEL_EXPORTER_OTLP_ENDPOINT: needs `pip install sandyard[otel]`")
    otlp = Otlp(settings, settings.otel_exporter_otlp_endpoint)
    tracing.start(otlp.tracing)
    return otlp


class Otlp:
    def __init__(self, settings: OtelSettings, endpoint: str) -> None:
        self._settings = settings
        self._endpoint = endpoint.rstrip("/")
        self._resource = _resource(settings)
        self._started_ns = time.time_ns()
        self._export: asyncio.Task[None] | None = None
        self.tracing = self._tracing()

    def traced(self, app: ASGIApp) -> ASGIApp:
        return self.tracing.app(app)

    def export_metrics(self, registry: CollectorRegistry, parts: Sequence[Part]) -> None:
        """Send them at each interval, until `close`."""
        self._export = asyncio.create_task(self._keep_exporting(registry, parts))

    async def close(self) -> None:
        tracing.start(None)
        if self._export is not None:
            self._export.cancel()
            with suppress(asyncio.CancelledError):
                await self._export
        await asyncio.to_thread(self.tracing.close)

    def _tracing(self) -> "OtelTracing":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        from sandyard.kit.observability.tracing_otel import OtelTracing

        provider = TracerProvider(ALWAYS_ON, self._resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(**self._receiver("traces"))
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return OtelTracing(provider, ratio=self._settings.otel_traces_sampler_arg)

    async def _keep_exporting(self, registry: CollectorRegistry, parts: Sequence[Part]) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        from sandyard.kit.observability.metrics_otel import as_metrics_data

        exporter = OTLPMetricExporter(**self._receiver("metrics"))
        while True:
            await asyncio.sleep(self._settings.otel_metric_export_interval / 1000)
            gauges = await read_gauges(parts)
            span = self._started_ns, time.time_ns()
            data = as_metrics_data(registry, gauges, self._resource, span)
            await asyncio.to_thread(exporter.export, data)

    def _receiver(self, signal: str) -> dict[str, Any]:
        from opentelemetry.util.re import parse_env_headers

        headers = self._settings.otel_exporter_otlp_headers
        return {
            "endpoint": f"{self._endpoint}/v1/{signal}",
            "headers": headers and parse_env_headers(headers.get_secret_value(), liberal=True),
            "timeout": _EXPORT_SEC,
        }


def _resource(settings: OtelSettings) -> "Resource":
    from opentelemetry.sdk.resources import Resource

    return Resource.create(
        {
            "service.name": settings.otel_service_name,
            "service.version": __version__,
            "service.instance.id": ids.holder_id(),
        }
    )

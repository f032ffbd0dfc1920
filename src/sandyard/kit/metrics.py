"""Prometheus metrics, also when several worker processes share a port.

With `PROMETHEUS_MULTIPROC_DIR` set, each worker writes its counters to files there and a scrape of
any worker adds them up. Gauges are computed when scraped, by a collector that the caller passes.
"""

import os
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def new_registry() -> CollectorRegistry:
    """A registry without the `_created` series, which double what a scrape carries."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    return CollectorRegistry()


class GaugeReading(Collector):
    """Gauges as they were read for one scrape."""

    def __init__(self, readings: Mapping[str, tuple[str, float]]) -> None:
        self._readings = readings

    def collect(self) -> Iterable[GaugeMetricFamily]:
        for name, (description, value) in self._readings.items():
            yield GaugeMetricFamily(name, description, value=value)


def render(registry: CollectorRegistry, readings: Mapping[str, tuple[str, float]]) -> bytes:
    gauges = CollectorRegistry()
    gauges.register(GaugeReading(readings))
    return generate_latest(_totals(registry)) + generate_latest(gauges)


def _totals(registry: CollectorRegistry) -> CollectorRegistry:
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return registry
    from prometheus_client.multiprocess import MultiProcessCollector

    totals = CollectorRegistry()
    MultiProcessCollector(totals)  # type: ignore[no-untyped-call]
    return totals

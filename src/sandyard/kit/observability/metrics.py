"""Prometheus metrics, also when several worker processes share a port.

With `PROMETHEUS_MULTIPROC_DIR` set, each worker writes its counters to files there and a scrape of
any worker adds them up. Gauges are computed when scraped, by a collector that the caller passes.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def new_registry() -> CollectorRegistry:
    """A registry without the `_created` series, which double what a scrape carries."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    return CollectorRegistry()


PREFIX = "sandyard_"
_NAMES = re.compile(rb"^(# (?:HELP|TYPE) )?(?!sandyard_|#)(?=[a-z])", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Labelled:
    """The values of one gauge, by those of its labels."""

    labels: tuple[str, ...]
    values: Mapping[tuple[str, ...], float]


Gauges = Mapping[str, tuple[str, float | Labelled]]
"""What a gauge is called, and what it means and shows."""


class GaugeReading(Collector):
    """Gauges as they were read for one scrape."""

    def __init__(self, readings: Gauges) -> None:
        self._readings = readings

    def collect(self) -> Iterable[GaugeMetricFamily]:
        for name, (description, value) in self._readings.items():
            if isinstance(value, Labelled):
                family = GaugeMetricFamily(name, description, labels=value.labels)
                for labels, each in value.values.items():
                    family.add_metric(labels, each)
                yield family
            else:
                yield GaugeMetricFamily(name, description, value=value)


def merged(readings: Iterable[Gauges]) -> Gauges:
    """All of them; one with labels that several have has the values of each."""
    gauges: dict[str, tuple[str, float | Labelled]] = {}
    for each in readings:
        for name, (description, value) in each.items():
            known = gauges.get(name)
            if isinstance(value, Labelled) and known and isinstance(known[1], Labelled):
                value = Labelled(value.labels, {**known[1].values, **value.values})
            gauges[name] = (description, value)
    return gauges


def render(registry: CollectorRegistry, readings: Gauges) -> bytes:
    """Everything by its own name, and by the same behind `sandyard_`: on a server of many programs
    a name such as `sync_total` says too little."""
    gauges = CollectorRegistry()
    gauges.register(GaugeReading(readings))
    shown = generate_latest(_totals(registry)) + generate_latest(gauges)
    return shown + _NAMES.sub(rb"\1sandyard_", _unprefixed(shown))


def _unprefixed(shown: bytes) -> bytes:
    """The lines of what has no prefix of its own."""
    own = re.compile(rb"^(?:# (?:HELP|TYPE) )?sandyard_.*\n", re.MULTILINE)
    return own.sub(b"", shown)


def _totals(registry: CollectorRegistry) -> CollectorRegistry:
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return registry
    from prometheus_client.multiprocess import MultiProcessCollector

    totals = CollectorRegistry()
    MultiProcessCollector(totals)  # type: ignore[no-untyped-call]
    return totals

"""Prometheus metrics, including several worker processes that share a port.

With `PROMETHEUS_MULTIPROC_DIR` set, each worker writes its counters to files there and a scrape of
any worker adds them up. Gauges are computed at scrape, by a collector that the caller passes.
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
    """A registry without the `_created` series, which would double the size of a scrape."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    return CollectorRegistry()


PREFIX = "sandyard_"
_NAMES = re.compile(rb"^(# (?:HELP|TYPE) )?(?!sandyard_|#)(?=[a-z])", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Labelled:
    """The values of one gauge, by label values."""

    labels: tuple[str, ...]
    values: Mapping[tuple[str, ...], float]


Gauges = Mapping[str, tuple[str, float | Labelled]]
"""Gauges by name: description and value."""


class GaugeReading(Collector):
    """Gauges as read for one scrape."""

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
    """All gauges; a labelled gauge in several readings has the values of all of them."""
    gauges: dict[str, tuple[str, float | Labelled]] = {}
    for each in readings:
        for name, (description, value) in each.items():
            known = gauges.get(name)
            if isinstance(value, Labelled) and known and isinstance(known[1], Labelled):
                value = Labelled(value.labels, {**known[1].values, **value.values})
            gauges[name] = (description, value)
    return gauges


def render(registry: CollectorRegistry, readings: Gauges) -> bytes:
    """All metrics under their own names, and again with the prefix `sandyard_`: on a server that
    runs many programs, a name such as `sync_total` is ambiguous."""
    gauges = CollectorRegistry()
    gauges.register(GaugeReading(readings))
    shown = generate_latest(_totals(registry)) + generate_latest(gauges)
    return shown + _NAMES.sub(rb"\1sandyard_", _unprefixed(shown))


def _unprefixed(shown: bytes) -> bytes:
    """The lines of metrics without the prefix."""
    own = re.compile(rb"^(?:# (?:HELP|TYPE) )?sandyard_.*\n", re.MULTILINE)
    return own.sub(b"", shown)


def _totals(registry: CollectorRegistry) -> CollectorRegistry:
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return registry
    from prometheus_client.multiprocess import MultiProcessCollector

    totals = CollectorRegistry()
    MultiProcessCollector(totals)  # type: ignore[no-untyped-call]
    return totals

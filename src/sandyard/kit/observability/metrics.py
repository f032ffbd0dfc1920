"""Prometheus metrics, including several worker processes that share a port.

With `PROMETHEUS_MULTIPROC_DIR` set, each worker writes its counters to files there and a scrape of
any worker adds them up. Gauges are computed at scrape, by a collector that the caller passes.
"""

import os
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
    """All metrics, each under one name: that of the seeds, or with the prefix `sandyard_`."""
    return generate_latest(_totals(registry)) + _gauges(readings)


def _gauges(readings: Gauges) -> bytes:
    gauges = CollectorRegistry()
    gauges.register(GaugeReading(readings))
    return generate_latest(gauges)


def render_own(registry: CollectorRegistry, readings: Gauges) -> bytes:
    """The same for a page that is joined to another process's: without the counters that the other
    one reads too."""
    return _gauges(readings) if _is_shared() else render(registry, readings)


def joined_pages(page: bytes, other: bytes) -> bytes:
    """One page of two. What both have is added up, except gauges: these are the first one's."""
    families: dict[str, dict[str, str]] = {}
    kinds: dict[str, str] = {}
    for line in (page + other).decode().splitlines():
        if line.startswith("# "):
            _, word, name, text = line.split(" ", 3)
            family = families.setdefault(name, {})
            family.setdefault(f"# {word} {name}", text)
            kinds |= {name: text} if word == "TYPE" else {}
            continue
        sample, _, value = line.rpartition(" ")
        known = family.setdefault(sample, "0" if kinds[name] != "gauge" else value)
        if kinds[name] != "gauge":
            family[sample] = repr(float(known) + float(value))
    lines = (f"{each} {value}\n" for family in families.values() for each, value in family.items())
    return "".join(lines).encode()


def _is_shared() -> bool:
    return "PROMETHEUS_MULTIPROC_DIR" in os.environ


def _totals(registry: CollectorRegistry) -> CollectorRegistry:
    if not _is_shared():
        return registry
    from prometheus_client.multiprocess import MultiProcessCollector

    totals = CollectorRegistry()
    MultiProcessCollector(totals)  # type: ignore[no-untyped-call]
    return totals

"""The metrics of `/metrics` in OpenTelemetry's format, to push to a collector."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as OtelMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from sandyard.kit.observability.metrics import PREFIX, GaugeReading, Gauges

Span = tuple[int, int]
"""When the counter started, and now: Unix time in nanoseconds."""
_ALL = AggregationTemporality.CUMULATIVE
_UNKNOWN: dict[str, Any] = {"min": None, "max": None}


def as_metrics_data(
    registry: CollectorRegistry, gauges: Gauges, resource: Resource, span: Span
) -> MetricsData:
    """All metrics by their prefixed names."""
    families = [*registry.collect(), *GaugeReading(gauges).collect()]
    metrics = [metric for family in families for metric in _metrics(family, span)]
    scope = ScopeMetrics(InstrumentationScope("sandyard"), metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource, [scope], schema_url="")])


def _metrics(family: Metric, span: Span) -> Iterator[OtelMetric]:
    if not family.samples:
        return
    name = f"{PREFIX}{family.name.removeprefix(PREFIX)}"
    data: Sum | Gauge | Histogram
    if family.type == "counter":
        name, data = f"{name}_total", Sum(_points(family.samples, span), _ALL, is_monotonic=True)
    elif family.type == "histogram":
        data = Histogram([*_histogram_points(family.samples, span)], _ALL)
    else:
        data = Gauge(_points(family.samples, span))
    yield OtelMetric(name, family.documentation, "", data)


def _points(samples: Iterable[Sample], span: Span) -> list[NumberDataPoint]:
    return [NumberDataPoint(each.labels, *span, float(each.value)) for each in samples]


def _histogram_points(samples: Sequence[Sample], span: Span) -> Iterator[HistogramDataPoint]:
    series: dict[tuple[tuple[str, str], ...], list[Sample]] = defaultdict(list)
    for sample in samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        series[tuple(labels.items())].append(sample)
    for key, each in series.items():
        yield _histogram_point(dict(key), each, span)


def _histogram_point(
    labels: dict[str, str], samples: Sequence[Sample], span: Span
) -> HistogramDataPoint:
    """Prometheus buckets are cumulative; OpenTelemetry's are not."""
    upto = [(float(s.labels["le"]), int(s.value)) for s in samples if s.name.endswith("_bucket")]
    total = next(s.value for s in samples if s.name.endswith("_sum"))
    counts = [count for _, count in upto]
    between = [now - before for now, before in zip(counts, [0, *counts], strict=False)]
    bounds = [bound for bound, _ in upto[:-1]]
    return HistogramDataPoint(labels, *span, counts[-1], total, between, bounds, **_UNKNOWN)

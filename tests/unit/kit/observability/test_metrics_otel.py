"""Metrics as a collector gets them: sums, gauges, and histograms by what is between two bounds."""

from typing import Any

from opentelemetry.sdk.resources import Resource
from prometheus_client import Counter, Histogram

from sandyard.kit.observability.metrics import Gauges, Labelled, new_registry
from sandyard.kit.observability.metrics_otel import as_metrics_data


def sent(gauges: Gauges, *, make: Any = None) -> dict[str, Any]:
    registry = new_registry()
    if make is not None:
        make(registry)
    data = as_metrics_data(registry, gauges, Resource.get_empty(), (1, 2))
    [resource] = data.resource_metrics
    [scope] = resource.scope_metrics
    return {metric.name: metric.data for metric in scope.metrics}


def test_a_counter_is_a_sum_that_only_grows() -> None:
    def make(registry: Any) -> None:
        Counter("sync_total", "Runs", ("outcome",), registry=registry).labels("ok").inc(3)

    found = sent({}, make=make)["sandyard_sync_total"]
    assert found.is_monotonic
    [point] = found.data_points
    assert (point.attributes, point.value) == ({"outcome": "ok"}, 3.0)
    assert (point.start_time_unix_nano, point.time_unix_nano) == (1, 2)


def test_a_gauge_keeps_its_name_and_labels() -> None:
    found = sent({"sandyard_jobs": ("Jobs", Labelled(("job",), {("sync",): 7}))})
    [point] = found["sandyard_jobs"].data_points
    assert (point.attributes, point.value) == ({"job": "sync"}, 7.0)
    assert isinstance(point.value, float)


def test_a_histogram_counts_between_its_bounds() -> None:
    def make(registry: Any) -> None:
        taken = Histogram("taken_seconds", "Time", ("how",), buckets=(1, 2), registry=registry)
        for seconds in (0.5, 1.5, 1.6, 9):
            taken.labels("so").observe(seconds)

    [point] = sent({}, make=make)["sandyard_taken_seconds"].data_points
    assert point.attributes == {"how": "so"}
    assert point.explicit_bounds == [1.0, 2.0]
    assert point.bucket_counts == [1, 2, 1]
    assert (point.count, round(point.sum, 3)) == (4, 12.6)
    assert point.min is None

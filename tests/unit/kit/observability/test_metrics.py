"""What a scrape shows: each metric once, and gauges with labels."""

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

from sandyard.kit.observability.metrics import Labelled, merged, new_registry, render


def shown(registry: CollectorRegistry, gauges: object = None) -> dict[str, float]:
    text = render(registry, gauges or {}).decode()  # type: ignore[arg-type]
    return {
        " ".join(
            [sample.name, *(value for _, value in sorted(sample.labels.items()))]
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_metric_is_there_once_under_its_own_name() -> None:
    registry = new_registry()
    Counter("sync_total", "Runs", ("outcome",), registry=registry).labels("failed").inc(3)
    gauges = {"sandyard_disk_free_bytes": ("Free", 7.0), "pool_total": ("All", 2.0)}
    assert shown(registry, gauges) == {
        "sync_total failed": 3,
        "sandyard_disk_free_bytes": 7,
        "pool_total": 2,
    }


def test_parts_share_a_gauge_by_its_labels() -> None:
    one = {"jobs": ("Jobs", Labelled(("part", "job"), {("broker", "sync"): 1.0}))}
    other = {"jobs": ("Jobs", Labelled(("part", "job"), {("platform", "ends"): 2.0}))}
    assert shown(new_registry(), merged([one, other])) == {
        "jobs sync broker": 1,
        "jobs ends platform": 2,
    }

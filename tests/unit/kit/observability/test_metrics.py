"""What a scrape shows: names with and without their prefix, and gauges with labels."""

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


def test_every_metric_has_its_name_behind_the_prefix_too() -> None:
    registry = new_registry()
    Counter("sync_total", "Runs", ("outcome",), registry=registry).labels("failed").inc(3)
    assert shown(registry) == {"sync_total failed": 3, "sandyard_sync_total failed": 3}


def test_one_that_has_the_prefix_is_told_once() -> None:
    gauges = {"sandyard_disk_free_bytes": ("Free", 7.0), "pool_total": ("All", 2.0)}
    assert render(new_registry(), gauges).count(b"\nsandyard_disk_free_bytes 7.0\n") == 1
    assert shown(new_registry(), gauges) == {
        "sandyard_disk_free_bytes": 7,
        "pool_total": 2,
        "sandyard_pool_total": 2,
    }


def test_parts_share_a_gauge_by_its_labels() -> None:
    one = {"jobs": ("Jobs", Labelled(("part", "job"), {("broker", "sync"): 1.0}))}
    other = {"jobs": ("Jobs", Labelled(("part", "job"), {("platform", "ends"): 2.0}))}
    assert shown(new_registry(), merged([one, other])) == {
        "jobs sync broker": 1,
        "jobs ends platform": 2,
        "sandyard_jobs sync broker": 1,
        "sandyard_jobs ends platform": 2,
    }

"""The Broker's metrics."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram

from sandyard.broker.pool.model import Status
from sandyard.kit.errors import (
    ConflictError,
    ExhaustedError,
    ForbiddenError,
    NotFoundError,
    UnavailableError,
)
from sandyard.kit.observability.metrics import Gauges, Labelled

_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.3, 1, 2.5, 5)
_DURATIONS = (0.01, 0.1, 0.5, 1, 5, 15, 60, 300)


class BrokerMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, buckets=buckets, registry=registry)

        self.allocate = counter("allocate_total", "Calls to allocate", "outcome")
        self.deletion_marked = counter(
            "deletion_marked_total", "Calls to mark-for-deletion", "outcome"
        )
        self.extended = counter("extend_total", "Calls to extend a lease", "outcome")
        self.replaced = counter("replace_total", "Calls to replace a sandbox", "outcome")
        self.holds_overdue = counter("holds_overdue_total", "Holds whose time ended unnoticed")
        self.sync = counter("sync_total", "Runs of sync", "outcome")
        self.cleanup = counter("cleanup_total", "Attempts to delete at the provider", "outcome")
        self.expiry = counter("expiry_total", "Allocations ended because their track forgot them")
        self.conflicts = counter(
            "allocate_conflicts_total", "Candidates that were lost to another claim"
        )
        self.idempotent_hits = counter(
            "idempotent_hits_total", "Calls to allocate that found their lease"
        )
        self.tombstones_listed = counter(
            "tombstones_listed_total", "Deleted sandboxes that the provider still lists"
        )
        self.delivery = counter(
            "event_delivery_total", "Tries to deliver an event to a sink", "sink", "outcome"
        )
        self.allocation_latency = histogram(
            "allocation_latency_seconds", "Time to lease a sandbox", _LATENCIES
        )
        self.sync_duration = histogram("sync_duration_seconds", "Time of a sync", _DURATIONS)
        self.cleanup_duration = histogram(
            "cleanup_duration_seconds", "Time of a cleanup", _DURATIONS
        )
        self.allocated = {
            outcome: self.allocate.labels(outcome)
            for outcome in (
                *("created", "repeated", "exhausted", "rate_limited", "unavailable"),
                "disconnected",  # while it waited
            )
        }
        for outcome in ("extended", "repeated", "refused", "unavailable"):
            self.extended.labels(outcome)
        for outcome in ("replaced", "repeated", "refused", "unavailable"):
            self.replaced.labels(outcome)
        for outcome in ("deleted", "retried", "failed"):
            self.cleanup.labels(outcome)
        for outcome in ("succeeded", "failed", "held_back"):
            self.sync.labels(outcome)
        for outcome in ("marked", "repeated", "refused", "unavailable"):
            self.deletion_marked.labels(outcome)

    def count_delivery(self, sink: str, outcome: str) -> None:
        """Webhooks share one label: there may be many, and they come and go."""
        self.delivery.labels("webhook" if sink.startswith("whk-") else sink, outcome).inc()


@contextmanager
def counting_failures(calls: Counter) -> Iterator[None]:
    """Counts the call as refused or unavailable if it fails so."""
    try:
        yield
    except UnavailableError:
        calls.labels("unavailable").inc()
        raise
    except (ConflictError, ExhaustedError, ForbiddenError, NotFoundError):
        calls.labels("refused").inc()
        raise


def pool_gauges(counts: Mapping[Status, int]) -> Gauges:
    """A gauge for every known state, including zeros, and their sum."""
    gauges: dict[str, tuple[str, float | Labelled]] = {
        f"pool_{status}": (f"Sandboxes that are {status}", counts[status]) for status in Status
    }
    gauges["pool_total"] = ("Sandboxes in the pool", sum(counts.values()))
    return gauges

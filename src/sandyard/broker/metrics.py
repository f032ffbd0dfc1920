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
    RateLimitedError,
    UnavailableError,
)
from sandyard.kit.observability.metrics import Gauges, Labelled

_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.3, 1, 2.5, 5)
_FAILURES = ("repeated", "refused", "unavailable")
_DURATIONS = (0.01, 0.1, 0.5, 1, 5, 15, 60, 300)


class BrokerMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *outcomes: str) -> Counter:
            """With a label `outcome` if it has outcomes, which are shown from the start."""
            made = Counter(name, text, ["outcome"] if outcomes else [], registry=registry)
            for each in outcomes:
                made.labels(each)
            return made

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, buckets=buckets, registry=registry)

        outcomes = (
            *("created", "repeated", "exhausted", "rate_limited", "unavailable"),
            "disconnected",  # while it waited
        )
        self.allocate = counter("allocate_total", "Calls to allocate", *outcomes)
        self.allocated = {outcome: self.allocate.labels(outcome) for outcome in outcomes}
        self.deletion_marked = counter(
            "deletion_marked_total", "Calls to mark-for-deletion", "marked", *_FAILURES
        )
        self.extended = counter("extend_total", "Calls to extend a lease", "extended", *_FAILURES)
        self.replaced = counter(
            "replace_total", "Calls to replace a sandbox", "replaced", *_FAILURES
        )
        self.holds_overdue = counter("holds_overdue_total", "Holds that ended by themselves")
        self.client_refused = counter(
            *("client_refused_total", "Calls refused by a limit of their client"),
            *("rate", "leases", "budget", "holds"),
        )
        self.sync = counter("sync_total", "Runs of sync", "succeeded", "failed", "held_back")
        self.cleanup = counter(
            "cleanup_total", "Attempts to delete at the provider", "deleted", "retried", "failed"
        )
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
        self.delivery = Counter(
            "event_delivery_total",
            "Tries to deliver an event to a sink",
            ["sink", "outcome"],
            registry=registry,
        )
        self.allocation_latency = histogram(
            "allocation_latency_seconds", "Time to lease a sandbox", _LATENCIES
        )
        self.sync_duration = histogram("sync_duration_seconds", "Time of a sync", _DURATIONS)
        self.cleanup_duration = histogram(
            "cleanup_duration_seconds", "Time of a cleanup", _DURATIONS
        )

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
    except (ConflictError, ExhaustedError, ForbiddenError, NotFoundError, RateLimitedError):
        calls.labels("refused").inc()
        raise


def pool_gauges(counts: Mapping[Status, int]) -> Gauges:
    """A gauge for every known state, including zeros, and their sum."""
    gauges: dict[str, tuple[str, float | Labelled]] = {
        f"pool_{status}": (f"Sandboxes that are {status}", counts[status]) for status in Status
    }
    gauges["pool_total"] = ("Sandboxes in the pool", sum(counts.values()))
    return gauges

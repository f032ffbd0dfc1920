"""Telemetry's metrics."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from sandyard.telemetry.model import IntakeReport, RejectionCode

_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.3, 1, 2.5, 5)


class TelemetryMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        readings = Counter("readings_total", "Readings by outcome", ("outcome",), registry=registry)
        rejections = Counter(
            "readings_rejected_total", "Rejected readings by reason", ("code",), registry=registry
        )
        self.acknowledged = readings.labels("acknowledged")
        self.duplicates = readings.labels("duplicate")
        self.rejected = readings.labels("rejected")
        self.rejected_for = {code: rejections.labels(code) for code in RejectionCode}
        self.registrations = Counter(
            "device_registrations_total", "Calls to register", registry=registry
        )
        self.expired = Counter(
            "readings_expired_total", "Readings removed after their retention", registry=registry
        )
        self.intake_latency = Histogram(
            "readings_intake_seconds",
            "Time to store the readings of a request",
            buckets=_LATENCIES,
            registry=registry,
        )

    def count(self, report: IntakeReport) -> None:
        self.acknowledged.inc(len(report.acknowledged))
        self.duplicates.inc(len(report.duplicates))
        self.rejected.inc(len(report.rejected))
        for rejection in report.rejected:
            self.rejected_for[rejection.code].inc()

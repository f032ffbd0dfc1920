"""Telemetry's jobs, by name."""

from sandyard.wiring.spec import JobSpec

RETENTION = JobSpec(
    "retention",
    "remove readings after their retention",
    absent="DynamoDB removes expired readings by itself",
)
EVENTS = JobSpec("telemetry-events", "remove events after their retention")

JOBS = (RETENTION, EVENTS)
"""In the order in which they are listed."""

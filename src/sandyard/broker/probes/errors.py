"""What can go wrong with a probe."""

from sandyard.kit.errors import UnavailableError


class ProbeDeadlineError(UnavailableError):
    """Free sandboxes failed their probes, and none that passes was found in time. Try again after
    `retry_after` seconds."""

"""The Broker's jobs, by name."""

from sandyard.wiring.spec import JobSpec

SYNC = JobSpec("sync", "compare the pool with the provider's list")
CLEANUP = JobSpec("cleanup", "delete sandboxes in pending_deletion at the provider")
EXPIRY = JobSpec("expiry", "reclaim expired leases that were not released")
QUEUE = JobSpec("queue", "drop abandoned tickets, and reserve free sandboxes for the next ones")
DELIVER = JobSpec("deliver", "send pending events to the sinks, where no server does")
CLIENT_LEASES = JobSpec("client-leases", "stop counting ended leases for their clients")
RESERVATIONS = JobSpec("reservations", "fill reservations that have begun, end those that are over")
HOLDS = JobSpec("holds", "report overdue holds")
PROBE = JobSpec(
    "probe", "quarantine free sandboxes that fail their probes, restore those that pass"
)
POOL = JobSpec("pool", "report a low pool, and create missing sandboxes")
HISTORY = JobSpec("history", "sample the pool's counts once a minute")
EVENTS = JobSpec("events", "remove events after their retention")

JOBS = (
    *(SYNC, CLEANUP, EXPIRY, QUEUE, RESERVATIONS, HOLDS, PROBE, POOL),
    *(DELIVER, CLIENT_LEASES, HISTORY, EVENTS),
)
"""In the order in which they are listed."""

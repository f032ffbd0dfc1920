"""The Platform's jobs, by name."""

from sandyard.wiring.spec import JobSpec

SIGNUPS = JobSpec("signups", "remove unverified sign-ups")
LOGINS = JobSpec("logins", "remove expired counts of failed logins")
RECONCILE = JobSpec("reconcile", "compare the sandboxes of this node with what runs on it")
ENDS = JobSpec("ends", "record sandboxes of this node that have ended")
WARM = JobSpec(
    "warm",
    "keep machines of templates warm on this node",
    absent="only sandboxes of this machine are kept warm",
)
MEASURE = JobSpec("measure", "sample the sandboxes of this node")
SNAPSHOTS = JobSpec("snapshots", "remove the files of stopped sandboxes that have expired")
BILLING = JobSpec("billing", "create bills from the usage")
DELETED_ACCOUNTS = JobSpec("deleted-accounts", "remove the data of deleted accounts")
EVENTS = JobSpec("platform-events", "remove events after their retention")

JOBS = (
    *(SIGNUPS, LOGINS, RECONCILE, ENDS, WARM, MEASURE, SNAPSHOTS, BILLING),
    *(DELETED_ACCOUNTS, EVENTS),
)
"""In the order in which they are listed."""

"""The jobs of each part in the order in which they are listed, known without importing the part."""

from sandyard.wiring.spec import JobSpec


class JobSpecs:
    @classmethod
    def all(cls) -> tuple[JobSpec, ...]:
        return tuple(each for each in vars(cls).values() if isinstance(each, JobSpec))


class BrokerJobSpecs(JobSpecs):
    SYNC = JobSpec("sync", "compare the pool with the provider's list")
    CLEANUP = JobSpec("cleanup", "delete sandboxes in pending_deletion at the provider")
    EXPIRY = JobSpec("expiry", "reclaim expired leases that were not released")
    QUEUE = JobSpec("queue", "drop abandoned tickets, and reserve free sandboxes for the next ones")
    RESERVATIONS = JobSpec(
        "reservations", "fill reservations that have begun, end those that are over"
    )
    HOLDS = JobSpec("holds", "end holds whose time is over")
    PROBE = JobSpec(
        "probe", "quarantine free sandboxes that fail their probes, restore those that pass"
    )
    POOL = JobSpec("pool", "report a low pool, and create missing sandboxes")
    DELIVER = JobSpec("deliver", "send pending events to the sinks, where no server does")
    CLIENT_LEASES = JobSpec("client-leases", "stop counting ended leases for their clients")
    HISTORY = JobSpec("history", "sample the pool's counts once a minute")
    EVENTS = JobSpec("events", "remove events after their retention")


class TelemetryJobSpecs(JobSpecs):
    RETENTION = JobSpec(
        "retention",
        "remove readings after their retention",
        absent="DynamoDB removes expired readings by itself",
    )
    EVENTS = JobSpec("telemetry-events", "remove events after their retention")


class PlatformJobSpecs(JobSpecs):
    SIGNUPS = JobSpec("signups", "remove unverified sign-ups")
    LOGINS = JobSpec("logins", "remove expired counts of failed logins and idempotency keys")
    RECONCILE = JobSpec("reconcile", "compare the sandboxes of this node with what runs on it")
    ENDS = JobSpec("ends", "record sandboxes of this node that have ended")
    WARM = JobSpec(
        "warm",
        "keep machines of templates warm on this node",
        absent="at E2B no machines are kept warm",
    )
    MEASURE = JobSpec("measure", "sample the sandboxes of this node")
    SNAPSHOTS = JobSpec("snapshots", "remove the files of stopped sandboxes that have expired")
    IMAGES = JobSpec("images", "remove the parts of images that nothing needs any more")
    VOLUMES = JobSpec(
        "volumes",
        "remove the files of deleted volumes of this node",
        absent="at E2B there are no volumes",
    )
    BILLING = JobSpec("billing", "create bills from the usage")
    DELETED_ACCOUNTS = JobSpec("deleted-accounts", "remove the data of deleted accounts")
    EVENTS = JobSpec("platform-events", "remove events after their retention")


class PreviewsJobSpecs(JobSpecs):
    END_PREVIEWS = JobSpec(
        "end-previews", "end previews of deleted projects and deactivated accounts"
    )
    DELETED_PROJECTS = JobSpec(
        "deleted-projects", "remove the files and previews of deleted projects"
    )
    SWEEP = JobSpec(
        "previews", "end orphaned previews of this node", absent="E2B ends previews by itself"
    )
    PUBLISHING = JobSpec("publishing", "end sandboxes of this node that nothing published needs")
    EVENTS = JobSpec("previews-events", "remove events after their retention")

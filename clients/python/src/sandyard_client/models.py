"""The API's answers by its OpenAPI document, as `generate_models.py` writes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

Effect = Literal["full", "partial", "removed", "none"]

Encoding = Literal["text", "base64"]

RejectionCode = Literal[
    "INVALID_READING",
    "INVALID_BATCH_ID",
    "INVALID_HARDWARE_ID",
    "INVALID_TIMESTAMP",
    "INVALID_BOOT_ID",
    "INVALID_FIRMWARE_VERSION",
    "INVALID_SENSORS",
    "INVALID_SENSOR_STATUS",
    "TOO_OLD",
    "DEVICE_NOT_REGISTERED",
    "BATCH_ID_CONFLICT",
]

ServiceType = Literal["sandbox_runtime", "storage", "charge", "credit"]

StaleReason = Literal["missing", "quarantined"]

Visibility = Literal["official", "public", "private"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessTokenAnswer:
    token: str
    """Send it as `X-Access-Token` to the sandbox's host"""
    url: str | None
    """A link that opens it in a browser; null without `view`"""
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    command_id: str
    arguments: list[str]
    folder: str
    tag: str | None
    is_terminal: bool
    is_running: bool
    exit_code: int | None
    """128 plus the signal number if a signal ended it"""
    started_at: datetime
    ended_at: datetime | None
    result: ResultAnswer | None
    """Of a command that did not run in the background"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAnswer:
    hardware_id: str
    confirmation_id: str
    friendly_name: str | None
    firmware_version: str
    capabilities: dict[str, Any]
    first_registered_at: str
    last_seen_at: str
    last_boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventAnswer:
    event_id: str
    """Sorts by the time of writing"""
    part: str
    kind: str
    subject: str
    sequence: int | None
    """Number of the subject's change; null if nothing changed"""
    actor: str
    """Such as track:demo, account:…, key:…, operator, job:expiry"""
    at: datetime
    reason: str | None
    effect: Effect
    """full: data is the whole state; partial: what changed; removed: the subject is gone; none:
    nothing changed"""
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAnswer:
    path: str
    name: str
    kind: Literal["file", "folder", "link", "other"]
    size_bytes: int
    mode: str
    """Permissions, in octal"""
    modified_at: datetime
    target: str | None
    """Of a link: its target"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeAnswer:
    """Every reading of the request is in one of the three; a rejection is final."""

    acknowledged_batch_ids: list[str]
    """Stored now, durably"""
    duplicate_batch_ids: list[str]
    """Already stored, with the same content"""
    rejected: list[RejectionAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseAnswer:
    sandbox_id: str
    name: str
    external_id: str
    allocated_at: int
    """Unix seconds"""
    expires_at: int
    """Unix seconds; the lease is live before this time"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkAnswer:
    sandbox_id: str
    """The sandbox that is released"""
    status: Literal["pending_deletion", "deletion_failed", "deleted", "held"]
    deletion_requested_at: int | None
    """Unix seconds of the first request; null if it is held"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSandboxAnswer:
    """Every attribute of a row."""

    sandbox_id: str
    name: str
    external_id: str
    status: Literal[
        "available",
        "reserved",
        "allocated",
        "pending_deletion",
        "stale",
        "held",
        "deletion_failed",
    ]
    stale_reason: StaleReason | None
    lab_duration_hours: float
    allocated_to_track: str | None
    idempotency_key: str | None
    track_name: str | None
    allocated_at: int
    expires_at: int | None
    deletion_requested_at: int | None
    deletion_retry_count: int
    next_attempt_at: int | None
    reserved_for: str | None
    """The ticket or reservation that a reserved sandbox is kept for"""
    reservation_id: str | None
    """The reservation that it is or was kept for"""
    status_reason: str | None
    """Why it is quarantined or held"""
    held_until: int | None
    replaced_by: str | None
    """The sandbox that its track got instead"""
    last_synced: int | None
    created_at: int
    updated_at: int
    allowed_actions: list[str]
    """What an operator may do to it now, in the order in which to offer it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatsAnswer:
    available: int
    reserved: int
    """Free, and kept for a reservation or a ticket"""
    allocated: int
    pending_deletion: int
    stale: int
    held: int
    deletion_failed: int
    total: int
    counted_at: int
    """Unix seconds; on DynamoDB up to 15 seconds ago, otherwise now"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramAnswer:
    """The program beside its machine."""

    status: Literal["starting", "running", "failed", "stopped"]
    """`running` once its port has listened"""
    since: datetime
    exit_code: int | None
    reason: str
    """Why it failed"""
    restarts: int
    """How often it was started again since it last ran for long"""
    restarts_at: datetime | None
    """When it is started again"""
    last_lines: list[str]
    """Of its log, if it failed"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingAnswer:
    hardware_id: str
    timestamp_ms: int
    received_at: str | None
    """When it arrived, to the second; null if version 0.2.0 stored it"""
    batch_id: str
    boot_id: str
    firmware_version: str
    friendly_name: str | None
    """The device's name when the reading arrived"""
    sensors: dict[str, float]
    sensor_status: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredAnswer:
    status: Literal["registered"] = "registered"
    confirmation_id: str
    """The same at every registration of this device"""
    hardware_id: str
    registered_at: str
    """RFC 3339, of the first registration"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionAnswer:
    index: int
    """Its index in the request, from 0"""
    batch_id: str | None
    """Null if it had no valid one"""
    code: RejectionCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultAnswer:
    stdout: str
    """The last MiB; with a terminal, all of its output"""
    stderr: str
    """The last MiB"""
    stdout_truncated: bool
    stderr_truncated: bool
    timed_out: bool
    encoding: Encoding


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxAnswer:
    sandbox_id: str
    name: str
    description: str | None
    template_id: str
    project_id: str | None
    cpu_spec: float
    memory_spec: float
    max_running_seconds: int
    is_public: bool
    """Whether its ports are public, without a token"""
    public_ports: list[int]
    """Ports that are public, without a token"""
    wake_on_request: bool
    """Whether a request to one of its ports starts it"""
    program_policy: Literal["on_failure", "never"]
    """Whether its program is started again after it failed"""
    program: ProgramAnswer | None
    """Its program, while it runs; null if its template has none"""
    metadata: dict[str, str]
    """Its metadata"""
    recycle_on_timeout: bool
    keeps_memory: bool
    """Whether its processes are kept when it stops"""
    network: Literal["none", "packages", "internet"]
    """What it can reach: `none`; `packages`, package indexes and git hosts; `internet`, all public
    hosts. Always through a proxy"""
    environment: str | None
    """Its root file system, if not the machine's own"""
    isolation: Literal["none", "bubblewrap", "gvisor"] | None
    """What its last machine was isolated by; null before its first start"""
    idle_stop_minutes: int | None
    """Stopped after this many minutes without use"""
    status: Literal[
        "created",
        "starting",
        "running",
        "stopped",
        "timeout",
        "recycled",
    ]
    status_reason: str | None
    """Why it is not running"""
    preview_url: str | None
    """The address of its program while it runs; access as configured"""
    cost: str
    """Of all its runs, including the current one so far"""
    currency: str
    """Of the amounts, by its code of ISO 4217"""
    snapshot_bytes: int | None
    snapshot_has_memory: bool
    """Whether its processes were kept, and go on at its next start"""
    snapshot_expires_at: datetime | None
    """When its stored files are removed"""
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    stopped_at: datetime | None
    timeout_at: datetime | None
    """The deadline of its run; null after its owner stopped it"""
    recycled_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateAnswer:
    template_id: str
    name: str
    description: str | None
    category: str
    language: str
    min_cpu_required: float
    min_memory_required: float
    is_official: bool
    is_public: bool
    visibility: Visibility
    is_own: bool
    """Whether it is yours"""
    repository_url: str
    repository_ref: str | None
    repository_folder: str | None
    repository_secret: str | None
    """The name of a secret, not its value"""
    network: Literal["none", "packages", "internet"] | None
    environment: str | None
    image: str | None
    """The same as `environment`"""
    isolation: Literal["bubblewrap", "gvisor"] | None
    tags: list[str] | None
    warm_machines: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketAnswer:
    ticket_id: str
    position: int
    """1 is next; 0: a sandbox is reserved for it, call again"""
    estimated_wait_sec: int | None
    """Based on how fast the queue moved recently; null if it did not"""
    ask_within_sec: float
    """Call again within this time to keep the position"""
    message: str | None = None
    """Says so if no sandbox of the pool has the requested prefix; else null"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageAnswer:
    usage_id: str
    sandbox_id: str | None
    """Null for the storage of an image"""
    project_id: str | None
    service_type: ServiceType
    start_time: datetime
    end_time: datetime | None
    """Null while it is open"""
    seconds: int
    """The whole seconds of the milliseconds"""
    milliseconds: int
    """Up to now, if it is open; a run counts for a second at least"""
    hourly_rate: str
    """Fixed at the start, not rounded"""
    cost: str
    """Milliseconds times rate, rounded half to even to 6 places"""
    currency: str
    """Of the amounts, by its code of ISO 4217"""
    cpu_hours: str
    """vCPU hours, rounded likewise"""
    memory_hours: str
    """GB hours of memory, rounded likewise"""
    storage_hours: str
    """GB hours of stored files, rounded likewise"""

"""The API's answers by its OpenAPI document, as `generate_models.py` writes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

ActionRequired = Literal["none", "sync_needed", "retry_later"]

Effect = Literal["full", "partial", "removed", "none"]

Encoding = Literal["text", "base64"]

ImageStatus = Literal["pulling", "ready", "failed"]

ProjectStatus = Literal["active", "archived"]

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

Role = Literal["user", "admin"]

Scope = Literal["read", "run", "admin"]

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
class AccountAnswer:
    account_id: str
    email: str
    username: str
    full_name: str | None
    role: Role
    is_active: bool
    is_verified: bool
    spend_threshold: str | None
    """A decimal number as a string"""
    last_login: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyAnswer:
    key_id: str
    name: str
    description: str | None
    prefix: str
    """Prefix of the key"""
    is_active: bool
    scope: Scope
    expires_at: datetime | None
    last_used_at: datetime | None
    """To within five minutes"""
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationAnswer:
    phase: Literal["installing", "starting", "running", "failed"]
    kind: str
    """What the project is: `static`, `vite`, `next`, `flask`, …"""
    exit_code: int | None
    """Of the installation or the server that has failed"""
    last_lines: list[str]
    """Of its log, unless it runs"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillAnswer:
    billing_id: str
    usage_id: str | None
    """Null for a charge or a credit"""
    project_id: str | None
    sandbox_id: str | None
    billing_date: str
    """A UTC day"""
    service_type: ServiceType
    usage_seconds: int
    """Whole seconds; the days of a usage add up"""
    usage_milliseconds: int
    """What the amount is computed from"""
    hourly_rate: str
    """Rounded to 6 places; the amount is computed from the usage's exact rate"""
    amount: str
    currency: str
    """Of the amounts, by its code of ISO 4217"""
    description: str | None
    created_at: datetime
    corrects: str | None
    """The bill that this one corrects; its numbers are then the difference"""
    cpu_hours: str
    memory_hours: str
    storage_hours: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingSumAnswer:
    key: str
    """The day, project, sandbox or service"""
    amount: str
    usage_seconds: int
    usage_milliseconds: int
    cpu_hours: str
    memory_hours: str
    storage_hours: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingSumsAnswer:
    by: Literal["day", "project", "sandbox", "service_type"]
    sums: list[BillingSumAnswer]
    total: str
    currency: str
    """Of the amounts, by its code of ISO 4217"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingAnswer:
    hosts: list[str]
    methods: list[str]
    paths: list[str]
    headers: list[str]
    query: list[str]
    sets_header: str | None
    most_requests: int | None
    most_bytes: int | None
    placeholder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPreviewAnswer:
    sandbox_id: str
    preview_url: str
    start_time: str
    """ISO 8601, UTC"""
    end_time: str
    """ISO 8601, UTC; as last reported by the provider"""
    remaining_time_minutes: int
    last_checked: str
    """When the provider last responded"""


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
class ComparisonAnswer:
    since: int
    version: int
    changes: list[DifferenceAnswer]
    """By path"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleMessageAnswer:
    level: str
    """`log`, `info`, `warning`, `error`, …"""
    text: str


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
class DifferenceAnswer:
    path: str
    change: Literal["added", "changed", "removed"]
    size_before: int | None
    """Bytes; null if it was added"""
    size_after: int | None
    """Bytes; null if it was removed"""


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
class FailedRequestAnswer:
    url: str
    method: str
    status: int | None
    """Null if there was no response"""
    error: str


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
class ImageAnswer:
    image_id: str
    reference: str
    status: ImageStatus
    reason: str | None
    """Why it failed"""
    progress: ImageProgress | None
    """Once it is known how large it is"""
    digest: str | None
    size_bytes: int | None
    """Of its parts as they are stored and billed"""
    unpacked_bytes: int | None
    command: list[str] | None
    """Its entry point with its arguments"""
    user_name: str | None
    folder: str | None
    ports: list[int] | None
    """The TCP ports that it exposes"""
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageProgress:
    pulled_bytes: int
    total_bytes: int


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
class MonthToDateAnswer:
    since: str
    """The first of the UTC month"""
    until: datetime
    """Now"""
    by: Literal["day", "project", "sandbox", "service_type"]
    sums: list[BillingSumAnswer]
    total: str
    billed: str
    """Sum of the month's bills"""
    unbilled: str
    """Not billed yet; negative if bills have to be corrected"""
    currency: str
    """Of the amounts, by its code of ISO 4217"""
    cpu_hours: str
    memory_hours: str
    storage_hours: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApiKeyAnswer:
    key_id: str
    api_key: str
    """Shown only once"""
    name: str
    description: str | None
    scope: Scope
    expires_at: datetime | None
    created_at: datetime


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
class PortAnswer:
    port: int
    url: str
    """Private unless the sandbox is public; access needs a token"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewAnswer:
    sandbox_id: str
    preview_url: str
    start_time: str
    """ISO 8601, UTC"""
    end_time: str
    """ISO 8601, UTC; as last reported by the provider"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewLookAnswer:
    url: str
    title: str
    screenshot: str | None
    """A PNG as base64"""
    console: list[ConsoleMessageAnswer]
    failed_requests: list[FailedRequestAnswer]
    is_complete: bool
    """False if the page was still busy at the time limit of 25 s"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewStatusAnswer:
    success: bool = True
    status: Literal["running", "expired", "not_found", "unknown"]
    stale: bool
    """The provider did not respond in time; this is its last known status"""
    sandbox_info: CheckedPreviewAnswer | None
    action_required: ActionRequired
    message: str
    application: ApplicationAnswer | None
    """What runs in it; null if it does not run, or that is not known yet"""
    retry_after: int | None
    """Seconds, with `retry_later`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewSyncAnswer:
    success: bool = True
    data: PreviewSyncData
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewSyncData:
    projectId: str
    sandbox_info: PreviewAnswer
    filesCount: int
    version: int
    """Version of the files in the sandbox"""
    outcome: Literal["created", "updated", "installed", "restarted", "unchanged"]
    """What the sync did: `created` a sandbox; sent files (`updated`), among them what packages are
    `installed` from or what it is `restarted` by; nothing (`unchanged`)"""


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
class ProjectAnswer:
    project_id: str
    name: str
    description: str | None
    status: ProjectStatus
    is_default: bool
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFileAnswer:
    path: str
    size: int
    """Bytes"""
    version: int
    """Version of the change set that last wrote it"""
    encoding: Literal["utf-8", "base64"]
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFilesAnswer:
    projectId: str
    version: int
    files: list[ProjectFileAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectVersionAnswer:
    projectId: str
    version: int
    """A new version if anything changed"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationAnswer:
    url: str
    """For everybody"""
    version: int | None
    """null until the first attempt has succeeded"""
    mode: Literal["files", "build", "run"] | None
    root: str | None
    fallback: str | None
    sandbox_id: str | None
    """What runs it"""
    published_at: datetime | None
    domains: list[str]
    """Hosts that show it too"""
    attempt: PublishAttemptAnswer | None
    """The next version, until it shows"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishAttemptAnswer:
    version: int
    mode: Literal["files", "build", "run"]
    failure: str | None
    """null while it is in progress"""
    last_lines: list[str]
    """Of the log of one that failed"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasAnswer:
    quotas: list[ResourceQuotaAnswer]


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
class ResourceQuotaAnswer:
    resource: str
    """Running `sandboxes` and `previews`, `cpu` and `memory_gb` of those sandboxes, `storage_gb` of
    workspaces and stored files, `snapshot_bytes` of these, `projects_total`, `templates_total`,
    `variables_total` and `sandboxes_total`, running or not, `file_bytes` of projects, …"""
    in_use: int | float
    limit: int | float | None
    """Null if there is no limit"""


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
    volumes: list[VolumeMount]
    """Mounted while it runs"""
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
class SshAddressAnswer:
    host: str
    port: int | None
    """Null if this server has no SSH"""
    host_keys: list[str]
    """Those in use and those that follow, for `known_hosts`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SshKeyAnswer:
    ssh_key_id: str
    name: str
    public_key: str
    fingerprint: str
    api_key_id: str | None
    """The API key that added it: it is valid as long as that is"""
    created_at: datetime


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


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableAnswer:
    name: str
    is_secret: bool
    value: str | None
    """Null if it is secret"""
    created_at: datetime
    updated_at: datetime
    binding: BindingAnswer | None
    budget_reached_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionAnswer:
    version: int
    author: str
    """Who made it, as in events"""
    created_at: datetime
    message: str
    files: int
    """How many it has"""
    size_bytes: int
    """Of all of them"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionsAnswer:
    versions: list[VersionAnswer]
    """Newest first"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeAnswer:
    volume_id: str
    name: str
    project_id: str | None
    size_gb: float
    read_only: bool
    """Whether it can only be read"""
    copied_from: str | None
    """The id of the volume that it is a copy of"""
    status: Literal["available", "mounted"]
    mounted_by: list[VolumeHolder]
    """Sandboxes that start or run with it"""
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeHolder:
    sandbox_id: str
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeMount:
    name: str
    path: str
    """Where the sandbox has it; made if it does not exist"""
    read_only: bool = False
    """One sandbox can mount it to write, or any number read-only"""

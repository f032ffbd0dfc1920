"""The bodies and answers of sandboxes, as the OpenAPI document describes them."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
)

from sandyard.kit.clock import utc_time
from sandyard.kit.http.schemas import Documented, PageAnswer, eg, example, inline
from sandyard.platform.http.fields import (
    ID,
    Answer,
    Currency,
    Description,
    Money,
    Name,
    RequestBody,
    ShortName,
    unchanged,
    whole,
)
from sandyard.platform.sandboxes import model
from sandyard.platform.volumes.model import (
    MOUNT_POINT,
    VOLUME_NAME,
    require_apart,
    require_mount_point,
)
from sandyard.runtime.guest.program import ProgramStatus
from sandyard.runtime.model import IsolationMode
from sandyard.runtime.network_model import Network

_LONGEST_RUN_SEC = int(model.LONGEST_RUN.total_seconds())

Cpu = Annotated[float, Field(ge=model.MIN_CPU, le=model.MAX_CPU, strict=True, description="vCPU")]
Memory = Annotated[
    float, Field(ge=model.MIN_MEMORY_GB, le=model.MAX_MEMORY_GB, strict=True, description="GB")
]
UnixTime = Annotated[datetime, BeforeValidator(utc_time)]
Seconds = Annotated[StrictInt, Field(ge=1, le=_LONGEST_RUN_SEC), BeforeValidator(whole)]
IdleMinutes = Annotated[
    StrictInt,
    Field(
        ge=1,
        le=_LONGEST_RUN_SEC // 60,
        description="Stop after this many minutes without use; null: never",
    ),
    BeforeValidator(whole),
]
SandboxStatus = Annotated[model.Status, inline(model.Status)]
Note = Annotated[StrictStr, Field(max_length=4096)]
Metadata = Annotated[dict[Note, Note], Field(description="Metadata, by name")]
NetworkField = Annotated[
    Network,
    Field(
        description="What it can reach: `none`; `packages`, package indexes and git hosts; "
        "`internet`, all public hosts. Always through a proxy"
    ),
]
PublicPorts = Annotated[
    list[Annotated[StrictInt, Field(ge=1, le=65535), BeforeValidator(whole)]],
    Field(max_length=100, description="Ports that are public, without a token"),
]
Policy = Annotated[
    Literal["on_failure", "never"],
    Field(description="Whether its program is started again after it failed"),
]
Id = Annotated[StrictStr, Field(min_length=1, max_length=25, pattern=ID)]


VolumeName = Annotated[StrictStr, Field(min_length=1, max_length=64, pattern=VOLUME_NAME)]
MountPoint = Annotated[
    StrictStr, Field(max_length=1024, pattern=MOUNT_POINT), AfterValidator(require_mount_point)
]


class VolumeMount(RequestBody):
    name: VolumeName = eg("models")
    path: MountPoint = eg(
        "/data", description="Where the sandbox has it; made if it does not exist"
    )
    read_only: StrictBool = Field(
        False, description="One sandbox can mount it to write, or any number read-only"
    )


VolumeMounts = Annotated[list[VolumeMount], Field(max_length=16), AfterValidator(require_apart)]


class NewSandboxBody(RequestBody):
    name: ShortName = eg("shop-pr-17")
    template_id: Id = eg("tpl-0b3d6f9h2k5m8p1rt")
    project_id: Id | None = Field(
        None, description="One of your projects; default: the default project"
    )
    description: Description | None = None
    cpu_spec: Cpu = model.DEFAULT_CPU
    memory_spec: Memory = model.DEFAULT_MEMORY_GB
    max_running_seconds: Seconds = int(model.DEFAULT_RUN.total_seconds())
    metadata: Metadata = Field(default_factory=dict, max_length=100)
    recycle_on_timeout: StrictBool = Field(
        False,
        description="Recycle it at its deadline instead of keeping its files",
    )
    keeps_memory: StrictBool = Field(
        False,
        description="Keep its processes when it stops, for its next start; only gVisor can",
    )
    public_ports: PublicPorts = Field(default_factory=list)
    program_policy: Policy = "on_failure"
    network: NetworkField | None = Field(None, description="Default: the template's")
    idle_stop_minutes: IdleMinutes | None = int(model.DEFAULT_IDLE_STOP.total_seconds()) // 60
    volumes: VolumeMounts = Field(default_factory=list, description="Mounted while it runs")


class SandboxChangesBody(RequestBody):
    """Fields that are left out stay as they are. Resources change only while it does not run."""

    model_config = example(cpu_spec=2.0, memory_spec=4.0)

    name: ShortName = unchanged()
    description: Description | None = Field(None, description="Null removes it")
    project_id: Id | None = Field(None, description="Null: it is in no project")
    cpu_spec: Cpu = unchanged()
    memory_spec: Memory = unchanged()
    max_running_seconds: Seconds = unchanged()
    is_public: StrictBool = unchanged()
    public_ports: PublicPorts = unchanged()
    wake_on_request: StrictBool = unchanged()
    program_policy: Policy = unchanged()
    network: NetworkField = unchanged()
    idle_stop_minutes: IdleMinutes | None = None


class StartBody(RequestBody):
    program: StrictBool = eg(
        False, True, description="False: only the machine starts, to repair its files or program"
    )
    memory: StrictBool = Field(
        True,
        description="False: processes that were kept do not go on; it starts from its files",
    )


class StopBody(RequestBody):
    memory: StrictBool | None = eg(
        True,
        None,
        description="Whether its processes are kept, for its next start; default: as it says in "
        "`keeps_memory`",
    )


class ExtendBody(RequestBody):
    seconds: Seconds = eg(3600, description="It runs for at least this long from now on")


class ProgramAnswer(Answer):
    """The program beside its machine."""

    status: Annotated[ProgramStatus, Field(description="`running` once its port has listened")] = (
        eg("failed")
    )
    since: UnixTime = eg("2026-10-30T09:00:05Z", validation_alias="since_at")
    exit_code: int | None = eg(1)
    reason: str = eg("It ended with code 1.", description="Why it failed")
    restarts: int = eg(2, description="How often it was started again since it last ran for long")
    restarts_at: UnixTime | None = eg(
        "2026-10-30T09:00:09Z", description="When it is started again"
    )
    last_lines: list[str] = eg(
        ["ModuleNotFoundError: No module named 'flask'"], description="Of its log, if it failed"
    )


class EndBody(RequestBody):
    reason: Name = eg(
        "its machine is gone for good", description="Sent to its owner, and stored in its history"
    )


class SandboxAnswer(Answer):
    sandbox_id: str = eg("sbx-1m4p7s0v3y6b9e2hk")
    name: str = eg("shop-pr-17")
    description: str | None
    template_id: str = eg("tpl-0b3d6f9h2k5m8p1rt")
    project_id: str | None = eg("prj-4k8s0m2q6w1c9x7ab")
    cpu_spec: float = eg(1.0)
    memory_spec: float = eg(1.0)
    max_running_seconds: int = eg(86_400)
    is_public: bool = eg(False, description="Whether its ports are public, without a token")
    public_ports: PublicPorts = eg([])
    wake_on_request: bool = eg(False, description="Whether a request to one of its ports starts it")
    program_policy: Policy = eg("on_failure")
    program: ProgramAnswer | None = eg(
        {
            "status": "running",
            "since": "2026-10-30T09:00:06Z",
            "exit_code": None,
            "reason": "",
            "restarts": 0,
            "restarts_at": None,
            "last_lines": [],
        },
        description="Its program, while it runs; null if its template has none",
    )
    metadata: dict[str, str] = eg({}, description="Its metadata")
    recycle_on_timeout: bool = eg(False)
    keeps_memory: bool = eg(False, description="Whether its processes are kept when it stops")
    network: NetworkField = eg("packages")
    environment: str | None = Field(description="Its root file system, if not the machine's own")
    isolation: IsolationMode | None = eg(
        "bubblewrap",
        description="What its last machine was isolated by; null before its first start",
    )
    volumes: list[VolumeMount] = eg([], description="Mounted while it runs")
    idle_stop_minutes: int | None = eg(
        60, description="Stopped after this many minutes without use"
    )
    status: SandboxStatus = eg("running")
    status_reason: str | None = Field(description="Why it is not running")
    preview_url: str | None = eg(
        "http://8080-sbx-1m4p7s0v3y6b9e2hk.localhost:8080/",
        description="The address of its program while it runs; access as configured",
    )
    cost: Money = eg("0.090000", description="Of all its runs, including the current one so far")
    currency: Currency = eg("USD")
    snapshot_bytes: int | None
    snapshot_has_memory: bool = eg(
        False, description="Whether its processes were kept, and go on at its next start"
    )
    snapshot_expires_at: datetime | None = Field(description="When its stored files are removed")
    created_at: datetime = eg("2026-10-30T09:00:00Z")
    updated_at: datetime = eg("2026-10-30T09:00:00Z")
    started_at: datetime | None = eg("2026-10-30T09:00:05Z")
    stopped_at: datetime | None
    timeout_at: datetime | None = eg(
        "2026-10-31T09:00:05Z",
        description="The deadline of its run; null after its owner stopped it",
    )
    recycled_at: datetime | None

    @classmethod
    def of(cls, found: model.PricedSandbox) -> Self:
        sandbox = found.sandbox
        return super().of(
            *(found, sandbox),
            metadata=sandbox.metadata or {},
            public_ports=sandbox.public_ports or [],
            volumes=sandbox.volumes or [],
            program_policy=sandbox.program_policy or "on_failure",
        )


class RefusalAnswer(BaseModel):
    host: str
    port: int
    reason: str
    count: int = Field(description="Number of connections")
    first_at: UnixTime
    last_at: UnixTime


class EgressAnswer(Answer):
    """Of its last run."""

    sandbox_id: str = eg("sbx-1m4p7s0v3y6b9e2hk")
    network: NetworkField = eg("packages")
    connections: int = eg(12, description="Allowed connections")
    refused: int = eg(1, description="Blocked connections")
    bytes_sent: int = eg(20480)
    bytes_received: int = eg(5242880)
    refusals: list[RefusalAnswer] = eg(
        [
            {
                "host": "example.org",
                "port": 443,
                "reason": "not in the package allow-list",
                "count": 1,
                "first_at": "2026-10-30T09:00:05Z",
                "last_at": "2026-10-30T09:00:05Z",
            }
        ],
        description="The last 100 hosts, latest last",
    )


class SandboxPage(PageAnswer):
    sandboxes: list[SandboxAnswer]
    next_cursor: str | None


class LogsAnswer(Documented):
    sandbox_id: str = eg("sbx-1m4p7s0v3y6b9e2hk")
    lines: list[str] = eg(["Listening on port 8080"], description="Oldest first")

"""The bodies and answers of sandboxes, as the OpenAPI document describes them."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, StrictBool, StrictInt, StrictStr

from sandyard.kit.clock import utc_time
from sandyard.kit.http.schemas import PageAnswer, example, inline
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


class NewSandboxBody(RequestBody):
    model_config = example(name="shop-pr-17", template_id="tpl-0b3d6f9h2k5m8p1rt")

    name: ShortName
    template_id: Id
    project_id: Id | None = Field(
        None, description="One of your projects; default: the default project"
    )
    description: Description | None = None
    cpu_spec: Cpu = model.DEFAULT_CPU
    memory_spec: Memory = model.DEFAULT_MEMORY_GB
    max_running_seconds: Seconds = int(model.DEFAULT_RUN.total_seconds())
    metadata: Metadata = Field(default_factory=dict, max_length=100)
    recycle_on_timeout: StrictBool = Field(
        False,  # noqa: FBT003
        description="Recycle it at its deadline instead of keeping its files",
    )
    keeps_memory: StrictBool = Field(
        False,  # noqa: FBT003
        description="Keep its processes when it stops, for its next start; only gVisor can",
    )
    public_ports: PublicPorts = Field(default_factory=list)
    program_policy: Policy = "on_failure"
    network: NetworkField | None = Field(None, description="Default: the template's")
    idle_stop_minutes: IdleMinutes | None = int(model.DEFAULT_IDLE_STOP.total_seconds()) // 60


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
    model_config = example(program=False)

    program: StrictBool = Field(
        True,  # noqa: FBT003
        description="False: only the machine starts, to repair its files or program",
    )
    memory: StrictBool = Field(
        True,  # noqa: FBT003
        description="False: processes that were kept do not go on; it starts from its files",
    )


class StopBody(RequestBody):
    model_config = example(memory=True)

    memory: StrictBool | None = Field(
        None,
        description="Whether its processes are kept, for its next start; default: as it says in "
        "`keeps_memory`",
    )


class ExtendBody(RequestBody):
    model_config = example(seconds=3600)

    seconds: Seconds = Field(description="It runs for at least this long from now on")


class ProgramAnswer(Answer):
    """The program beside its machine."""

    model_config = example(
        status="failed",
        since="2026-10-30T09:00:05Z",
        exit_code=1,
        reason="It ended with code 1.",
        restarts=2,
        restarts_at="2026-10-30T09:00:09Z",
        last_lines=["ModuleNotFoundError: No module named 'flask'"],
    )

    status: Annotated[ProgramStatus, Field(description="`running` once its port has listened")]
    since: UnixTime = Field(validation_alias="since_at")
    exit_code: int | None
    reason: str = Field(description="Why it failed")
    restarts: int = Field(description="How often it was started again since it last ran for long")
    restarts_at: UnixTime | None = Field(description="When it is started again")
    last_lines: list[str] = Field(description="Of its log, if it failed")


class EndBody(RequestBody):
    model_config = example(reason="its machine is gone for good")

    reason: Name = Field(description="Sent to its owner, and stored in its history")


class SandboxAnswer(Answer):
    model_config = example(
        sandbox_id="sbx-1m4p7s0v3y6b9e2hk",
        name="shop-pr-17",
        description=None,
        template_id="tpl-0b3d6f9h2k5m8p1rt",
        project_id="prj-4k8s0m2q6w1c9x7ab",
        cpu_spec=1.0,
        memory_spec=1.0,
        max_running_seconds=86_400,
        is_public=False,
        public_ports=[],
        wake_on_request=False,
        program_policy="on_failure",
        program={
            "status": "running",
            "since": "2026-10-30T09:00:06Z",
            "exit_code": None,
            "reason": "",
            "restarts": 0,
            "restarts_at": None,
            "last_lines": [],
        },
        metadata={},
        recycle_on_timeout=False,
        keeps_memory=False,
        network="packages",
        environment=None,
        isolation="bubblewrap",
        idle_stop_minutes=60,
        status="running",
        status_reason=None,
        preview_url="http://8080-sbx-1m4p7s0v3y6b9e2hk.localhost:8080/",
        cost="0.090000",
        currency="USD",
        snapshot_bytes=None,
        snapshot_has_memory=False,
        snapshot_expires_at=None,
        created_at="2026-10-30T09:00:00Z",
        updated_at="2026-10-30T09:00:00Z",
        started_at="2026-10-30T09:00:05Z",
        stopped_at=None,
        timeout_at="2026-10-31T09:00:05Z",
        recycled_at=None,
    )

    sandbox_id: str
    name: str
    description: str | None
    template_id: str
    project_id: str | None
    cpu_spec: float
    memory_spec: float
    max_running_seconds: int
    is_public: bool = Field(description="Whether its ports are public, without a token")
    public_ports: PublicPorts
    wake_on_request: bool = Field(description="Whether a request to one of its ports starts it")
    program_policy: Policy
    program: ProgramAnswer | None = Field(
        description="Its program, while it runs; null if its template has none"
    )
    metadata: dict[str, str] = Field(description="Its metadata")
    recycle_on_timeout: bool
    keeps_memory: bool = Field(description="Whether its processes are kept when it stops")
    network: NetworkField
    environment: str | None = Field(description="Its root file system, if not the machine's own")
    isolation: IsolationMode | None = Field(
        description="What its last machine was isolated by; null before its first start"
    )
    idle_stop_minutes: int | None = Field(description="Stopped after this many minutes without use")
    status: SandboxStatus
    status_reason: str | None = Field(description="Why it is not running")
    preview_url: str | None = Field(
        description="The address of its program while it runs; access as configured"
    )
    cost: Money = Field(description="Of all its runs, including the current one so far")
    currency: Currency
    snapshot_bytes: int | None
    snapshot_has_memory: bool = Field(
        description="Whether its processes were kept, and go on at its next start"
    )
    snapshot_expires_at: datetime | None = Field(description="When its stored files are removed")
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    stopped_at: datetime | None
    timeout_at: datetime | None = Field(
        description="The deadline of its run; null after its owner stopped it"
    )
    recycled_at: datetime | None

    @classmethod
    def of(cls, found: model.PricedSandbox) -> Self:
        sandbox = found.sandbox
        return super().of(
            *(found, sandbox),
            metadata=sandbox.metadata or {},
            public_ports=sandbox.public_ports or [],
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

    model_config = example(
        sandbox_id="sbx-1m4p7s0v3y6b9e2hk",
        network="packages",
        connections=12,
        refused=1,
        bytes_sent=20480,
        bytes_received=5242880,
        refusals=[
            {
                "host": "example.org",
                "port": 443,
                "reason": "not in the package allow-list",
                "count": 1,
                "first_at": "2026-10-30T09:00:05Z",
                "last_at": "2026-10-30T09:00:05Z",
            }
        ],
    )

    sandbox_id: str
    network: NetworkField
    connections: int = Field(description="Allowed connections")
    refused: int = Field(description="Blocked connections")
    bytes_sent: int
    bytes_received: int
    refusals: list[RefusalAnswer] = Field(description="The last 100 hosts, latest last")


class SandboxPage(PageAnswer):
    sandboxes: list[SandboxAnswer]
    next_cursor: str | None


class LogsAnswer(BaseModel):
    model_config = example(sandbox_id="sbx-1m4p7s0v3y6b9e2hk", lines=["Listening on port 8080"])

    sandbox_id: str
    lines: list[str] = Field(description="Oldest first")

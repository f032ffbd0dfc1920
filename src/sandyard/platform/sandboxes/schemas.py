"""The bodies and answers of sandboxes, as the OpenAPI document describes them."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, Field, StrictInt, StrictStr

from sandyard.kit.schemas import PageAnswer, example, inline
from sandyard.platform.fields import (
    ID,
    Description,
    Money,
    Name,
    RequestBody,
    ShortName,
    unchanged,
)
from sandyard.platform.sandboxes.model import Changes, NewSandbox, PricedSandbox, Status


def _whole(value: object) -> object:
    """60.0 is an integer too, as JSON has it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Cpu = Annotated[float, Field(ge=1, le=8, strict=True, description="vCPU")]
Memory = Annotated[float, Field(ge=0.5, le=16, strict=True, description="GB")]
Seconds = Annotated[StrictInt, Field(ge=1, le=7 * 86_400), BeforeValidator(_whole)]
SandboxStatus = Annotated[Status, inline(Status)]
Id = Annotated[StrictStr, Field(min_length=1, max_length=25, pattern=ID)]


class NewSandboxBody(RequestBody):
    model_config = example(name="shop-pr-17", template_id="tpl-0b3d6f9h2k5m8p1rt")

    name: ShortName
    template_id: Id
    project_id: Id | None = Field(None, description="Yours; the default one if left out")
    description: Description | None = None
    cpu_spec: Cpu = 1.0
    memory_spec: Memory = 1.0
    max_running_seconds: Seconds = 86_400

    def new(self) -> NewSandbox:
        return NewSandbox(
            name=self.name,
            template_id=self.template_id,
            project_id=self.project_id,
            description=self.description,
            cpu_spec=self.cpu_spec,
            memory_spec=self.memory_spec,
            max_running_seconds=self.max_running_seconds,
        )


class SandboxChangesBody(RequestBody):
    """Fields that are left out stay as they are. Resources change only while it does not run."""

    model_config = example(cpu_spec=2.0, memory_spec=4.0)

    name: ShortName = unchanged()
    description: Description | None = Field(None, description="Null takes it away")
    cpu_spec: Cpu = unchanged()
    memory_spec: Memory = unchanged()
    max_running_seconds: Seconds = unchanged()

    def changes(self) -> Changes:
        return Changes({name: getattr(self, name) for name in self.model_fields_set})


class EndBody(RequestBody):
    model_config = example(reason="its machine is gone for good")

    reason: Name = Field(description="Told to its owner, and kept with its history")


class SandboxAnswer(BaseModel):
    model_config = example(
        sandbox_id="sbx-1m4p7s0v3y6b9e2hk",
        name="shop-pr-17",
        description=None,
        template_id="tpl-0b3d6f9h2k5m8p1rt",
        project_id="prj-4k8s0m2q6w1c9x7ab",
        cpu_spec=1.0,
        memory_spec=1.0,
        max_running_seconds=86_400,
        status="running",
        status_reason=None,
        preview_url="http://127.0.0.1:41234/",
        cost="0.090000",
        snapshot_bytes=None,
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
    status: SandboxStatus
    status_reason: str | None = Field(description="Why it is not running, in words")
    preview_url: str | None = Field(description="Where it serves, while it runs")
    cost: Money = Field(description="Of all its runs; of the present one up to now")
    snapshot_bytes: int | None
    snapshot_expires_at: datetime | None = Field(description="When its kept files are removed")
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    stopped_at: datetime | None
    timeout_at: datetime | None = Field(description="When it is ended at the latest")
    recycled_at: datetime | None

    @classmethod
    def of(cls, found: PricedSandbox) -> Self:
        return cls.model_validate(asdict(found.sandbox) | {"cost": found.cost})


class SandboxPage(PageAnswer):
    sandboxes: list[SandboxAnswer]
    next_cursor: str | None


class LogsAnswer(BaseModel):
    model_config = example(sandbox_id="sbx-1m4p7s0v3y6b9e2hk", lines=["Listening on port 8080"])

    sandbox_id: str
    lines: list[str] = Field(description="The oldest first")

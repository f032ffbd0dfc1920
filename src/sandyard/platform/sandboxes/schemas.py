"""The bodies and answers of sandboxes, as the OpenAPI document describes them."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, Field, StrictInt, StrictStr

from sandyard.platform.fields import Description, Money, RequestBody, ShortName, unchanged
from sandyard.platform.sandboxes.model import Changes, NewSandbox, Sandbox, Status


def _whole(value: object) -> object:
    """60.0 is an integer too, as JSON has it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Cpu = Annotated[float, Field(ge=1, le=8, strict=True, description="vCPU")]
Memory = Annotated[float, Field(ge=0.5, le=16, strict=True, description="GB")]
Seconds = Annotated[StrictInt, Field(ge=1, le=7 * 86_400), BeforeValidator(_whole)]
Id = Annotated[StrictStr, Field(min_length=1, max_length=25, pattern=r"^[a-z0-9-]+$")]


class NewSandboxBody(RequestBody):
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


class ChangesBody(RequestBody):
    """Fields that are left out stay as they are. Resources change only while it does not run."""

    name: ShortName = unchanged()
    description: Description | None = Field(None, description="Null takes it away")
    cpu_spec: Cpu = unchanged()
    memory_spec: Memory = unchanged()
    max_running_seconds: Seconds = unchanged()

    def changes(self) -> Changes:
        return Changes({name: getattr(self, name) for name in self.model_fields_set})


class SandboxAnswer(BaseModel):
    sandbox_id: str
    name: str
    description: str | None
    template_id: str
    project_id: str | None
    cpu_spec: float
    memory_spec: float
    max_running_seconds: int
    status: Status
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
    def of(cls, sandbox: Sandbox) -> Self:
        return cls.model_validate(sandbox, from_attributes=True)


class SandboxPage(BaseModel):
    sandboxes: list[SandboxAnswer]
    next_cursor: str | None


class LogsAnswer(BaseModel):
    sandbox_id: str
    lines: list[str] = Field(description="The oldest first")

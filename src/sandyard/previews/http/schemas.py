"""The bodies and answers of Previews, as the OpenAPI document describes them."""

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr

from sandyard.previews.errors import FileConflictError, WrongEncodingError
from sandyard.previews.model import (
    ActionRequired,
    ChangeSet,
    ProjectFile,
    SandboxInfo,
    Status,
    Verdict,
    iso,
    remaining_minutes,
)
from sandyard.previews.service import Synced

Path = Annotated[StrictStr, Field(min_length=1, max_length=512)]


class InfoAnswer(BaseModel):
    sandbox_id: str
    preview_url: str
    start_time: str = Field(description="ISO 8601, UTC")
    end_time: str = Field(description="ISO 8601, UTC; as the provider last said")

    @classmethod
    def of(cls, info: SandboxInfo) -> Self:
        return cls(
            sandbox_id=info.sandbox_id,
            preview_url=info.preview_url,
            start_time=iso(info.start_time),
            end_time=iso(info.end_time),
        )


class CheckedInfoAnswer(InfoAnswer):
    remaining_time_minutes: int
    last_checked: str = Field(description="When the provider last answered")


class StatusAnswer(BaseModel):
    success: bool = True
    status: Status
    stale: bool = Field(description="The provider does not answer; this is what it last said")
    sandbox_info: CheckedInfoAnswer | None
    action_required: ActionRequired
    message: str

    @classmethod
    def of(cls, verdict: Verdict, now: datetime) -> Self:
        info = None
        if verdict.info is not None:
            info = CheckedInfoAnswer(
                **InfoAnswer.of(verdict.info).model_dump(),
                remaining_time_minutes=remaining_minutes(verdict.info.end_time, now=now),
                last_checked=iso(verdict.info.last_checked),
            )
        return cls(
            status=verdict.status,
            stale=verdict.is_stale,
            sandbox_info=info,
            action_required=verdict.action,
            message=verdict.message,
        )


class SyncedData(BaseModel):
    projectId: str  # noqa: N815 - the name that front ends know
    sandbox_info: InfoAnswer
    filesCount: int  # noqa: N815
    version: int = Field(description="Of the files that the sandbox has")


class SyncAnswer(BaseModel):
    success: bool = True
    data: SyncedData
    message: str

    @classmethod
    def of(cls, synced: Synced) -> Self:
        return cls(
            data=SyncedData(
                projectId=synced.project_id,
                sandbox_info=InfoAnswer.of(synced.info),
                filesCount=synced.files_count,
                version=synced.version,
            ),
            message="The preview is running.",
        )


class FileBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: Path
    content: StrictStr
    encoding: Literal["utf-8", "base64"] = "utf-8"

    def bytes(self) -> bytes:
        try:
            if self.encoding == "utf-8":
                return self.content.encode()
            return base64.b64decode(self.content, validate=True)
        except ValueError as error:
            raise WrongEncodingError(details={"path": self.path}) from error


class FilesBody(BaseModel):
    """A change set: what is written, what is deleted; with `replace` all other files go too."""

    model_config = ConfigDict(extra="forbid")

    files: list[FileBody] = Field(default_factory=list, max_length=10_000)
    deleted: list[Path] = Field(default_factory=list, max_length=10_000)
    replace: StrictBool = False

    def changes(self) -> ChangeSet:
        written = {file.path: file.bytes() for file in self.files}
        if len(written) != len(self.files):
            raise FileConflictError("A path is written twice.")
        return ChangeSet(written, frozenset(self.deleted), is_whole=self.replace)


class VersionAnswer(BaseModel):
    projectId: str  # noqa: N815
    version: int = Field(description="A new one, if anything is different")


class FileAnswer(BaseModel):
    path: str
    size: int
    version: int = Field(description="Of the change set that wrote it last")
    encoding: Literal["utf-8", "base64"]
    content: str

    @classmethod
    def of(cls, file: ProjectFile) -> Self:
        encoding: Literal["utf-8", "base64"] = "utf-8"
        try:
            content = file.content.decode()
        except UnicodeDecodeError:
            encoding, content = "base64", base64.b64encode(file.content).decode()
        return cls(
            path=file.path,
            size=len(file.content),
            version=file.version,
            encoding=encoding,
            content=content,
        )


class FilesAnswer(BaseModel):
    projectId: str  # noqa: N815
    version: int
    files: Sequence[FileAnswer]

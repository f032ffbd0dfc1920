"""The bodies and answers of Previews, as the OpenAPI document describes them."""

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from sandyard.kit.http.schemas import example, inline
from sandyard.previews.errors import FileConflictError, WrongEncodingError
from sandyard.previews.files import ChangeSet, ProjectFile
from sandyard.previews.model import SandboxInfo, iso, remaining_minutes
from sandyard.previews.service import Synced
from sandyard.previews.status_model import ActionRequired, PreviewStatus, StatusReport

InlineStatus = Annotated[PreviewStatus, inline(PreviewStatus)]
_PROJECT_ID = "prj-4k8s0m2q6w1c9x7ab"
_PREVIEW = {
    "sandbox_id": "sbx-1m4p7s0v3y6b9e2hk",
    "preview_url": "http://8080-prj-4k8s0m2q6w1c9x7ab.localhost:8080/",
    "start_time": "2026-10-30T09:00:00Z",
    "end_time": "2026-10-30T10:00:00Z",
}
_FILE = {"path": "public/index.html", "content": "<h1>Hello</h1>", "encoding": "utf-8"}

Path = Annotated[StrictStr, Field(min_length=1, max_length=512)]


class PreviewAnswer(BaseModel):
    sandbox_id: str
    preview_url: str
    start_time: str = Field(description="ISO 8601, UTC")
    end_time: str = Field(description="ISO 8601, UTC; as last reported by the provider")

    @classmethod
    def of(cls, info: SandboxInfo) -> Self:
        return cls(
            sandbox_id=info.sandbox_id,
            preview_url=info.preview_url,
            start_time=iso(info.start_time),
            end_time=iso(info.end_time),
        )


class CheckedPreviewAnswer(PreviewAnswer):
    remaining_time_minutes: int
    last_checked: str = Field(description="When the provider last responded")


class PreviewStatusAnswer(BaseModel):
    model_config = example(
        success=True,
        status="running",
        stale=False,
        sandbox_info=_PREVIEW
        | {"remaining_time_minutes": 42, "last_checked": "2026-10-30T09:18:00Z"},
        action_required="none",
        message="The preview is running.",
    )

    success: bool = True
    status: InlineStatus
    stale: bool = Field(
        description="The provider did not respond in time; this is its last known status"
    )
    sandbox_info: CheckedPreviewAnswer | None
    action_required: ActionRequired
    message: str

    @classmethod
    def of(cls, report: StatusReport, now: datetime) -> Self:
        info = None
        if report.info is not None and report.last_checked is not None:
            info = CheckedPreviewAnswer(
                **PreviewAnswer.of(report.info).model_dump(),
                remaining_time_minutes=remaining_minutes(report.info.end_time, now=now),
                last_checked=iso(report.last_checked),
            )
        return cls(
            status=report.status,
            stale=report.is_stale,
            sandbox_info=info,
            action_required=report.action,
            message=report.message,
        )


class PreviewSyncData(BaseModel):
    projectId: str  # noqa: N815 - the name that front ends know
    sandbox_info: PreviewAnswer
    filesCount: int  # noqa: N815
    version: int = Field(description="Version of the files in the sandbox")


class PreviewSyncAnswer(BaseModel):
    model_config = example(
        success=True,
        data={"projectId": _PROJECT_ID, "sandbox_info": _PREVIEW, "filesCount": 1, "version": 3},
        message="The preview is running.",
    )

    success: bool = True
    data: PreviewSyncData
    message: str

    @classmethod
    def of(cls, synced: Synced) -> Self:
        return cls(
            data=PreviewSyncData(
                projectId=synced.project_id,
                sandbox_info=PreviewAnswer.of(synced.info),
                filesCount=synced.files_count,
                version=synced.version,
            ),
            message="The preview is running.",
        )


class ProjectFileBody(BaseModel):
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


class ProjectFilesBody(BaseModel):
    """A change set: what is written, what is deleted; with `replace` all other files go too."""

    model_config = ConfigDict(extra="forbid", **example(files=[_FILE], deleted=["old.html"]))

    files: list[ProjectFileBody] = Field(default_factory=list, max_length=10_000)
    deleted: list[Path] = Field(default_factory=list, max_length=10_000)
    replace: StrictBool = False
    expected_version: Annotated[StrictInt, Field(ge=0)] | None = Field(
        None, description="The version that the change is based on; 409 if the current one differs"
    )

    def changes(self) -> ChangeSet:
        written = {file.path: file.bytes() for file in self.files}
        if len(written) != len(self.files):
            raise FileConflictError("A path is written twice.")
        return ChangeSet(written, frozenset(self.deleted), is_whole=self.replace)


class ProjectVersionAnswer(BaseModel):
    model_config = example(projectId=_PROJECT_ID, version=3)

    projectId: str  # noqa: N815
    version: int = Field(description="A new version if anything changed")


class ProjectFileAnswer(BaseModel):
    path: str
    size: int = Field(description="Bytes")
    version: int = Field(description="Version of the change set that last wrote it")
    encoding: Literal["utf-8", "base64"]
    content: str


class ProjectFilesAnswer(BaseModel):
    model_config = example(
        projectId=_PROJECT_ID, version=3, files=[_FILE | {"size": 14, "version": 3}]
    )

    projectId: str  # noqa: N815
    version: int
    files: Sequence[ProjectFileAnswer]


def encode_files(project_id: str, version: int, files: Sequence[ProjectFile]) -> bytes:
    """A `ProjectFilesAnswer` of megabytes, as JSON."""
    shown = [_shown(file) for file in files]
    return orjson.dumps({"projectId": project_id, "version": version, "files": shown})


def _shown(file: ProjectFile) -> dict[str, Any]:
    encoding = "utf-8"
    try:
        content = file.content.decode()
    except UnicodeDecodeError:
        encoding, content = "base64", base64.b64encode(file.content).decode()
    size = len(file.content)
    return {
        "path": file.path,
        "size": size,
        "version": file.version,
        "encoding": encoding,
        "content": content,
    }

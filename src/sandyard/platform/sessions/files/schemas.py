"""The bodies and answers of files, as the OpenAPI document describes them."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import BaseModel, Field, StrictStr

from sandyard.kit.clock import utc_time
from sandyard.kit.http.schemas import example
from sandyard.kit.patterns import pattern
from sandyard.platform.http.fields import Answer, RequestBody
from sandyard.runtime.sessions.model import FileInfo, FileKind

NO_NUL = pattern(r"^[^\x00]+$", "must have no NUL")
BodyPath = Annotated[StrictStr, Field(min_length=1, max_length=4095, pattern=NO_NUL)]


class MoveBody(RequestBody):
    model_config = example(source="draft.txt", target="docs/final.txt")

    source: BodyPath
    target: BodyPath


class FolderBody(RequestBody):
    model_config = example(path="docs/images")

    path: BodyPath


class FileAnswer(Answer):
    model_config = example(
        path="/workspace/app/main.py",
        name="main.py",
        kind="file",
        size_bytes=1204,
        mode="0644",
        modified_at="2026-10-30T09:00:00Z",
        target=None,
    )

    path: str
    name: str
    kind: FileKind
    size_bytes: int
    mode: str = Field(description="Permissions, in octal")
    modified_at: datetime
    target: str | None = Field(description="Of a link: its target")

    @classmethod
    def of(cls, info: FileInfo) -> Self:
        modified_at = utc_time(info.modified_at)
        return super().of(info, mode=f"{info.mode:04o}", modified_at=modified_at)


class FileList(BaseModel):
    model_config = example(files=[], next_cursor=None)

    files: list[FileAnswer] = Field(description="Sorted by path")
    next_cursor: str | None

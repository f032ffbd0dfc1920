"""Calls for the files of a project and their versions."""

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from tempfile import SpooledTemporaryFile
from typing import Annotated, Any, Literal, Self

import orjson
from fastapi import Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.kit.http.bodies import limited
from sandyard.kit.http.routes import GuardedRoutes, JsonResponse, caller_of
from sandyard.kit.http.schemas import Documented, eg, example, example_of
from sandyard.previews.archives import most_bytes, pack, unpack
from sandyard.previews.errors import FileConflictError, WrongEncodingError
from sandyard.previews.files import ChangeSet, FileChange, ProjectFile, Version
from sandyard.previews.project_files import ProjectFiles

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_IN_MEMORY = 1 << 20
_EXAMPLE_ID = "prj-4k8s0m2q6w1c9x7ab"
_FILE = {"path": "public/index.html", "content": "<h1>Hello</h1>", "encoding": "utf-8"}

Caller = Annotated[Any, Depends(caller_of)]
ProjectId = Annotated[str, Path(description="The id of one of your projects")]
Number = Annotated[int, Path(ge=1, le=2**31 - 1, description="The number of a version")]
Chosen = Annotated[
    int | None, Query(ge=1, le=2**31 - 1, description="Instead of the current version")
]
FilePath = Annotated[StrictStr, Field(min_length=1, max_length=512)]
Message = Annotated[StrictStr, Field(max_length=500)]


class ProjectFileBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: FilePath
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
    deleted: list[FilePath] = Field(default_factory=list, max_length=10_000)
    replace: StrictBool = False
    expected_version: Annotated[StrictInt, Field(ge=0)] | None = Field(
        None, description="The version that the change is based on; 409 if the current one differs"
    )
    message: Message = Field("", description="What the change is for")

    def changes(self) -> ChangeSet:
        written = {file.path: file.bytes() for file in self.files}
        if len(written) != len(self.files):
            raise FileConflictError("A path is written twice.")
        return ChangeSet(written, frozenset(self.deleted), is_whole=self.replace)


class ProjectVersionAnswer(BaseModel):
    model_config = example(projectId=_EXAMPLE_ID, version=3)

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
        projectId=_EXAMPLE_ID, version=3, files=[_FILE | {"size": 14, "version": 3}]
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


class VersionAnswer(Documented):
    version: int = eg(3)
    author: str = eg("account:100000000001", description="Who made it, as in events")
    created_at: datetime = eg("2026-10-30T09:00:00Z")
    message: str = eg("A larger heading")
    files: int = eg(12, description="How many it has")
    size_bytes: int = eg(4096, description="Of all of them")

    @classmethod
    def of(cls, version: Version) -> Self:
        return cls(**asdict(version))


class VersionsAnswer(Documented):
    versions: Sequence[VersionAnswer] = eg([example_of(VersionAnswer)], description="Newest first")


class DifferenceAnswer(Documented):
    path: str = eg("public/index.html")
    change: FileChange = eg("changed")
    size_before: int | None = eg(14, description="Bytes; null if it was added")
    size_after: int | None = eg(15, description="Bytes; null if it was removed")


class ComparisonAnswer(Documented):
    since: int = eg(2)
    version: int = eg(3)
    changes: Sequence[DifferenceAnswer] = eg([example_of(DifferenceAnswer)], description="By path")


class RestoreBody(Documented):
    model_config = ConfigDict(extra="forbid", **example(message="As on Monday"))

    message: Message = Field("", description="By default the number of the restored version")


def add_files(routes: GuardedRoutes, files: ProjectFiles) -> None:
    one_at_a_time = KeyedLocks()  # megabytes each: one at a time per account
    _add_current(routes, files, one_at_a_time)
    _add_archives(routes, files, one_at_a_time)
    _add_versions(routes, files)


def _add_current(routes: GuardedRoutes, files: ProjectFiles, listings: KeyedLocks) -> None:

    @routes.get(
        "/files",
        "List a project's files",
        response_class=Response,
        answers={200: {"model": ProjectFilesAnswer, "description": "Every file"}},
    )
    async def list_project_files(
        caller: Caller,
        project_id: ProjectId,
        version: Chosen = None,
        path: Annotated[
            str | None, Query(min_length=1, max_length=512, description="Only the file there")
        ] = None,
    ) -> Response:
        """All files with their contents; files that are not UTF-8 are base64. One listing at a
        time."""
        async with listings.of(caller.account_id):
            number, found = await files.list(
                project_id,
                account_id=caller.account_id,
                version=version,
                paths=None if path is None else (path,),
            )
            body = await asyncio.to_thread(encode_files, project_id, number, found)
        return JsonResponse(body)

    @routes.put("/files", "Change a project's files", 409)
    async def change_project_files(
        caller: Caller, project_id: ProjectId, body: ProjectFilesBody
    ) -> ProjectVersionAnswer:
        """The change set is applied completely or not at all, as a new version. A running preview
        gets it with the next sync. With `expected_version` it is refused if the files have another
        version."""
        version = await files.change(
            project_id,
            body.changes(),
            message=body.message,
            expected_version=body.expected_version,
            account_id=caller.account_id,
            actor=caller.actor,
        )
        return ProjectVersionAnswer(projectId=project_id, version=version)


def _add_archives(routes: GuardedRoutes, files: ProjectFiles, transfers: KeyedLocks) -> None:
    @routes.get(
        "/files/tar",
        "Read a project's files as a tar archive",
        response_class=Response,
        answers={200: {"content": {"application/x-tar": _BINARY}}},
    )
    async def read_project_tar(
        caller: Caller, project_id: ProjectId, version: Chosen = None
    ) -> Response:
        """Of the current version, or of an earlier one."""
        async with transfers.of(caller.account_id):
            _, found = await files.list(project_id, account_id=caller.account_id, version=version)
            packed = await asyncio.to_thread(pack, found)
        return Response(packed, media_type="application/x-tar")

    @routes.put(
        "/files/tar",
        "Replace a project's files by a tar archive",
        409,
        described={
            "requestBody": {
                "required": True,
                "content": {"application/octet-stream": _BINARY},
            }
        },
        is_streamed=True,
    )
    async def write_project_tar(
        request: Request,
        caller: Caller,
        project_id: ProjectId,
        message: Annotated[str, Query(max_length=500, description="What the change is for")] = "",
        expected_version: Annotated[
            int | None, Query(ge=0, le=2**31 - 1, description="409 if the files have another one")
        ] = None,
    ) -> ProjectVersionAnswer:
        """All files, as one new version: others are removed. Folders are left out, links refused,
        and so is a compressed archive."""
        async with transfers.of(caller.account_id):
            with SpooledTemporaryFile(_IN_MEMORY) as packed:
                async for piece in limited(request.stream(), most_bytes(files.limits)):
                    packed.write(piece)
                packed.seek(0)
                contents = await asyncio.to_thread(unpack, packed, files.limits)
            version = await files.change(
                project_id,
                ChangeSet(contents, is_whole=True),
                message=message,
                expected_version=expected_version,
                account_id=caller.account_id,
                actor=caller.actor,
            )
        return ProjectVersionAnswer(projectId=project_id, version=version)


def _add_versions(routes: GuardedRoutes, files: ProjectFiles) -> None:
    @routes.get("/versions", "List the versions of a project's files")
    async def list_project_versions(caller: Caller, project_id: ProjectId) -> VersionsAnswer:
        """The last PREVIEW_KEEP_VERSIONS, newest first. `GET /files` has the files of each."""
        found = await files.versions(project_id, account_id=caller.account_id)
        return VersionsAnswer(versions=[VersionAnswer.of(each) for each in found])

    @routes.get("/versions/{version}/changes", "Compare two versions of a project's files")
    async def compare_project_versions(
        caller: Caller,
        project_id: ProjectId,
        version: Number,
        since: Annotated[
            int | None,
            Query(ge=0, le=2**31 - 1, description="By default the one before; 0 has no files"),
        ] = None,
    ) -> ComparisonAnswer:
        """The paths at which the files differ."""
        before = version - 1 if since is None else since
        found = await files.compare(
            project_id, since=before, version=version, account_id=caller.account_id
        )
        changes = [DifferenceAnswer(**asdict(each)) for each in found]
        return ComparisonAnswer(since=before, version=version, changes=changes)

    @routes.post("/versions/{version}/restore", "Restore a version of a project's files", 409)
    async def restore_project_version(
        caller: Caller, project_id: ProjectId, version: Number, body: RestoreBody
    ) -> ProjectVersionAnswer:
        """Makes a new version with its files. A running preview gets it with the next sync."""
        restored = await files.restore(
            project_id,
            version,
            message=body.message,
            account_id=caller.account_id,
            actor=caller.actor,
        )
        return ProjectVersionAnswer(projectId=project_id, version=restored)

    @routes.delete(
        "/versions", "Remove earlier versions of a project's files", 409, status_code=204
    )
    async def remove_project_versions(
        caller: Caller,
        project_id: ProjectId,
        keep: Annotated[int, Query(ge=1, le=1000, description="How many of the last stay")] = 1,
    ) -> None:
        """They no longer count in the account's FILE_BYTES_PER_ACCOUNT."""
        await files.forget(project_id, keeps=keep, account_id=caller.account_id, actor=caller.actor)

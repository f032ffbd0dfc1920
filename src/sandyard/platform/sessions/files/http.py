"""Calls about the files of a sandbox. Contents are streamed in both directions."""

import posixpath
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import Field, StrictStr

from sandyard.kit.clock import utc_time
from sandyard.kit.http.byte_ranges import parse_range
from sandyard.kit.http.held_streams import HeldStream
from sandyard.kit.http.routes import GuardedRoutes
from sandyard.kit.http.schemas import PageAnswer, eg, example
from sandyard.kit.paging import page_up_to, position_in
from sandyard.kit.patterns import pattern
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, inside_routes
from sandyard.platform.http.fields import Answer, RequestBody
from sandyard.platform.sandboxes.http import SandboxId
from sandyard.platform.sessions.files.service import SandboxFiles
from sandyard.runtime.errors import FileRefusedError
from sandyard.runtime.sessions.model import WORKSPACE, FileInfo, FileKind, FileSelection
from sandyard.runtime.sessions.ports import Files

NO_NUL = pattern(r"^[^\x00]+$", "must have no NUL")
BodyPath = Annotated[StrictStr, Field(min_length=1, max_length=4095, pattern=NO_NUL)]


class MoveBody(RequestBody):
    source: BodyPath = eg("draft.txt")
    target: BodyPath = eg("docs/final.txt")


class FolderBody(RequestBody):
    path: BodyPath = eg("docs/images")


class FileAnswer(Answer):
    path: str = eg("/workspace/app/main.py")
    name: str = eg("main.py")
    kind: FileKind = eg("file")
    size_bytes: int = eg(1204)
    mode: str = eg("0644", description="Permissions, in octal")
    modified_at: datetime = eg("2026-10-30T09:00:00Z")
    target: str | None = Field(description="Of a link: its target")

    @classmethod
    def of(cls, info: FileInfo) -> Self:
        modified_at = utc_time(info.modified_at)
        return super().of(info, mode=f"{info.mode:04o}", modified_at=modified_at)


class FileList(PageAnswer):
    model_config = example(files=[], next_cursor=None)

    files: list[FileAnswer] = Field(description="Sorted by path")
    next_cursor: str | None


_OCTAL = pattern(r"^0?[0-7]{3}$", "must be permissions in octal, such as 0755")
_LONG_CURSOR = pattern(
    "^[A-Za-z0-9_-]{1,40000}$", "must be the `next_cursor` of the page before, as it was"
)
"""It has a path, of up to 4095 characters."""

FilePath = Annotated[
    str,
    Query(
        min_length=1,
        max_length=4095,
        pattern=NO_NUL,
        description="Absolute, or relative to `/workspace`",
    ),
]
Depth = Annotated[int, Query(ge=1, le=100, description="Depth of subfolders")]
Mode = Annotated[
    str | None, Query(pattern=_OCTAL, description="Permissions, in octal, such as 0755")
]

MOST_LISTED = 1000
ListLimit = Annotated[int, Query(ge=1, le=MOST_LISTED, description="Maximum number of items")]
ListCursor = Annotated[
    str | None,
    Query(pattern=_LONG_CURSOR, description="The `next_cursor` of the previous page"),
]

_BYTES, _TAR = "application/octet-stream", "application/x-tar"
_MOST_LINKS = 40


def create_files_router(stored: SandboxFiles, guard: AccessGuard) -> APIRouter:
    routes = inside_routes(guard, "/sandboxes/{sandbox_id}/files", tag="files")
    _add_contents(routes, stored)
    _add_archives(routes, stored)
    _add_names(routes, stored)
    return routes.router


def _add_contents(routes: GuardedRoutes, stored: SandboxFiles) -> None:
    @routes.get(
        "",
        "Read a file",
        *(404, 409, 416),
        response_class=Response,
        answers={200: _binary(_BYTES), 206: _binary(_BYTES) | {"description": "A part of it"}},
    )
    async def read_file(
        caller: Caller,
        sandbox_id: SandboxId,
        path: FilePath,
        range: Annotated[  # noqa: A002 - the header
            str | None, Header(max_length=100, description="The byte range")
        ] = None,
    ) -> Response:
        """The file's bytes, of any size. `Range: bytes=…` returns a part."""
        async with AsyncExitStack() as opened:
            files = await opened.enter_async_context(stored.open(sandbox_id, by=caller))
            wanted = None
            if range is not None:
                wanted = parse_range(range, size=(await _followed(files, path)).size_bytes)
            if wanted is None:
                headers = {"Accept-Ranges": "bytes"}
                return await _stream(opened, files.read(path), _BYTES, headers)
            content = files.read(path, offset=wanted.offset, limit=wanted.length)
            headers = {"Content-Range": wanted.content_range}
            return await _stream(opened, content, _BYTES, headers, status=206)

    @routes.put("", "Write a file", 404, 409, described=_binary_body(_BYTES), is_streamed=True)
    async def write_file(
        request: Request,
        caller: Caller,
        sandbox_id: SandboxId,
        path: FilePath,
        mode: Mode = None,
    ) -> FileAnswer:
        """The body is the content, up to MAX_UPLOAD_BYTES. The file is written completely or not at
        all; missing parent folders are created. A replaced file keeps its permissions."""
        async with stored.open(sandbox_id, by=caller, writes=True) as files:
            bits = None if mode is None else int(mode, 8)
            return FileAnswer.of(await files.write(path, request.stream(), mode=bits))

    @routes.delete("", "Remove a file or a folder", 404, 409, status_code=204)
    async def remove_file(caller: Caller, sandbox_id: SandboxId, path: FilePath) -> None:
        """A folder is removed with its contents. A link is removed itself."""
        async with stored.open(sandbox_id, by=caller, writes=True) as files:
            await files.remove(path)


def _add_archives(routes: GuardedRoutes, stored: SandboxFiles) -> None:
    @routes.get(
        "/tar",
        "Read a folder as a tar archive",
        *(404, 409),
        response_class=Response,
        answers={200: _binary(_TAR)},
    )
    async def read_folder_tar(
        caller: Caller, sandbox_id: SandboxId, path: FilePath = WORKSPACE
    ) -> Response:
        """Names are relative to the folder."""
        async with AsyncExitStack() as opened:
            files = await opened.enter_async_context(stored.open(sandbox_id, by=caller))
            return await _stream(opened, files.read_tar(path), _TAR, {})

    @routes.put(
        "/tar",
        "Unpack a tar archive into a folder",
        *(404, 409),
        status_code=204,
        described=_binary_body(_BYTES),
        is_streamed=True,
    )
    async def write_folder_tar(
        request: Request, caller: Caller, sandbox_id: SandboxId, path: FilePath = WORKSPACE
    ) -> None:
        """Creates the folder if it is missing. Entries can't leave it. Files that were unpacked
        before an error stay."""
        async with stored.open(sandbox_id, by=caller, writes=True) as files:
            await files.write_tar(path, request.stream())


def _add_names(routes: GuardedRoutes, stored: SandboxFiles) -> None:
    @routes.get("/list", "List a folder", 404, 409)
    async def list_folder(
        caller: Caller,
        sandbox_id: SandboxId,
        path: FilePath = WORKSPACE,
        depth: Depth = 1,
        limit: ListLimit = MOST_LISTED,
        cursor: ListCursor = None,
    ) -> FileList:
        """Sorted by path. Includes subfolders, up to `depth`. Links are not followed."""
        async with stored.open(sandbox_id, by=caller) as files:
            listing = f"files of {sandbox_id} at {path} to {depth}"
            last = position_in(listing, cursor, str)
            wanted = FileSelection(None if last is None else last[0], limit + 1)
            found = await files.list(path, depth=depth, selection=wanted)
        page = page_up_to(limit, found, listing, lambda info: [info.path])
        return FileList.of(page, FileAnswer.of)

    @routes.get("/stat", "Get a file's attributes", 404, 409)
    async def stat_file(caller: Caller, sandbox_id: SandboxId, path: FilePath) -> FileAnswer:
        """Also of a folder, or of a link itself."""
        async with stored.open(sandbox_id, by=caller) as files:
            return FileAnswer.of(await files.stat(path))

    @routes.post("/move", "Move a file or a folder", 404, 409)
    async def move_file(caller: Caller, sandbox_id: SandboxId, body: MoveBody) -> FileAnswer:
        """A file at the target is replaced; a folder at the target must be empty."""
        async with stored.open(sandbox_id, by=caller, writes=True) as files:
            return FileAnswer.of(await files.move(body.source, body.target))

    @routes.post("/mkdir", "Create a folder", 404, 409)
    async def make_folder(caller: Caller, sandbox_id: SandboxId, body: FolderBody) -> FileAnswer:
        """Also creates missing parents. An existing folder does not change."""
        async with stored.open(sandbox_id, by=caller, writes=True) as files:
            await files.make_folder(body.path)
            return FileAnswer.of(await files.stat(body.path))


async def _followed(files: Files, path: str) -> FileInfo:
    """The entry at the path; for a link, its target."""
    for _ in range(_MOST_LINKS):
        info = await files.stat(path)
        if info.target is None:
            return info
        path = posixpath.join(posixpath.dirname(info.path), info.target)
    raise FileRefusedError


async def _stream(
    opened: AsyncExitStack,
    content: AsyncIterator[bytes],
    media_type: str,
    headers: dict[str, str],
    *,
    status: int = 200,
) -> Response:
    """The answer begins with the first bytes, so that earlier errors still get a status."""
    first = await anext(content, b"")

    async def pieces() -> AsyncIterator[bytes]:
        yield first
        async for piece in content:
            yield piece

    response = HeldStream(pieces(), status, media_type=media_type, headers=headers)
    response.held = opened.pop_all()
    return response


def _binary(media_type: str) -> dict[str, Any]:
    return {"content": {media_type: {"schema": {"type": "string", "format": "binary"}}}}


def _binary_body(media_type: str) -> dict[str, Any]:
    return {"requestBody": {"required": True, **_binary(media_type)}}

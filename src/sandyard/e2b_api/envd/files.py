"""`/files`: uploads and downloads of whole files."""

import posixpath
import zlib
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sandyard.e2b_api.envd.connect import json_response, media_type_of
from sandyard.e2b_api.envd.filesystem import METADATA
from sandyard.e2b_api.envd.machine import OwnFiles, UserSession
from sandyard.e2b_api.envd.multipart import parts_of
from sandyard.e2b_api.envd.paths import whole_path
from sandyard.e2b_api.errors import InvalidRequestError
from sandyard.kit.errors import InvalidError
from sandyard.kit.http.bodies import limited
from sandyard.kit.http.byte_ranges import ByteRange, parse_range
from sandyard.runtime.errors import FileMissingError, FileRefusedError

_PIECE_BYTES = 1 << 20
_METADATA = "x-metadata-"
_ONE_OR_NAMED = "Send one file with `path`, or several files named by their paths."
_MOST_METADATA_BYTES = 2048


class NotAFileError(InvalidError):
    """The path is a directory, or another kind of file that can't be read or written."""

    code = "E2B_NOT_A_FILE"


async def download(session: UserSession, request: Request) -> Response:
    """The whole file, or the bytes in `Range`."""
    path, files = whole_path(request.query_params.get("path", ""), session.home), session.files
    try:
        size = await _size(files, path)
        wanted = None if size is None else parse_range(request.headers.get("range"), size=size)
        part = (0, None) if wanted is None else (wanted.offset, wanted.length)
        pieces = files.read(path, *part)
        first = await anext(pieces, b"")
    except FileMissingError as error:
        raise FileMissingError(f"path '{path}' does not exist") from error
    except FileRefusedError as error:
        raise NotAFileError(f"path '{path}' is a directory, or may not be read") from error
    named = f"inline; filename*=utf-8''{quote(posixpath.basename(path))}"
    headers = {"Content-Disposition": named, **_extent(size, wanted)}
    status = 200 if wanted is None else 206
    return StreamingResponse(
        rejoined(first, pieces), status, headers=headers, media_type="application/octet-stream"
    )


async def upload(session: UserSession, request: Request, *, most_bytes: int) -> Response:
    """Multipart, where each part is named by its path unless `path` is given, or one raw file."""
    path = request.query_params.get("path")
    if media_type_of(request) == "multipart/form-data":
        written = await _upload_parts(session, request, path, most_bytes=most_bytes)
    elif path:
        body = limited(_decoded(request), most_bytes)
        written = [await _write(session, path, body, _metadata(request))]
    else:
        raise InvalidRequestError("Name the file with `path`.")
    return json_response(written)


async def _upload_parts(
    session: UserSession, request: Request, path: str | None, *, most_bytes: int
) -> list[dict[str, Any]]:
    metadata, written = _metadata(request), list[dict[str, Any]]()
    form = parts_of(request.headers["content-type"], limited(_decoded(request), most_bytes))
    async for part in form:
        if path and written:
            raise InvalidRequestError(_ONE_OR_NAMED)
        if name := path or part.file_name:
            written.append(await _write(session, name, part.content, metadata))
    if not written:
        raise InvalidRequestError(_ONE_OR_NAMED)
    return written


async def _write(
    session: UserSession, path: str, content: AsyncIterator[bytes], metadata: Mapping[str, str]
) -> dict[str, Any]:
    files, whole = session.files, whole_path(path, session.home)
    try:
        await files.write(whole, content)
        if metadata:
            noted = {METADATA + name: value for name, value in metadata.items()}
            await files.set_attributes(whole, noted)
    except FileRefusedError as error:
        raise NotAFileError(f"path is a directory, or may not be written: {whole}") from error
    entry = {"name": posixpath.basename(whole), "path": whole, "type": "file"}
    return entry | ({"metadata": dict(metadata)} if metadata else {})


def _metadata(request: Request) -> Mapping[str, str]:
    """The metadata for every file of the request. Raises InvalidRequestError."""
    sent = {
        name.removeprefix(_METADATA): value
        for name, value in request.headers.items()
        if name.startswith(_METADATA)
    }
    size = sum(len(name) + len(value) for name, value in sent.items())
    if "" in sent or size > _MOST_METADATA_BYTES:
        raise InvalidRequestError(
            f"Metadata needs names, and may have {_MOST_METADATA_BYTES} bytes."
        )
    return sent


async def _size(files: OwnFiles, path: str) -> int | None:
    """The size of a plain file; the target of a link may change, and kernel files report 0."""
    info = await files.stat(path)
    return info.size_bytes if info.kind == "file" and info.size_bytes > 0 else None


def _extent(size: int | None, wanted: ByteRange | None) -> dict[str, str]:
    if wanted is not None:
        return {"Content-Range": wanted.content_range, "Content-Length": str(wanted.length)}
    return {} if size is None else {"Accept-Ranges": "bytes", "Content-Length": str(size)}


async def rejoined(first: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The content whose first piece was already read."""
    yield first
    async for piece in pieces:
        yield piece


async def _decoded(request: Request) -> AsyncIterator[bytes]:
    """The body, decompressed if it is gzip."""
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise InvalidRequestError("A body must be gzip or uncompressed.")
    pieces: AsyncIterator[bytes] = request.stream()
    try:
        async for piece in decompressed(pieces) if encoding == "gzip" else pieces:
            yield piece
    except zlib.error as error:
        raise InvalidRequestError("The body is not valid gzip.") from error


async def decompressed(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """From gzip, in pieces of a limited size. Raises zlib.error."""
    unpacking = zlib.decompressobj(wbits=31)
    async for piece in pieces:
        while piece:
            yield unpacking.decompress(piece, _PIECE_BYTES)
            piece = unpacking.unconsumed_tail

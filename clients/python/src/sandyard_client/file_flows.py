"""Files of a running sandbox, as flows: of any size, written completely or not at all."""

import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from sandyard_client.calls import Calls, chunks
from sandyard_client.decoding import decode
from sandyard_client.errors import ConnectionFailedError, NotFoundError
from sandyard_client.models import FileAnswer
from sandyard_client.sandbox_flows import about
from sandyard_client.steps import Flow, work
from sandyard_client.unpacking import unpack
from sandyard_client.wire import Content, Request

_PIECE = 1 << 18
_TRANSFER_SEC = 300.0
_TRIES = 3

Progress = Callable[[int, int | None], object]
"""Called with the bytes transferred, and the total if known."""


def read(calls: Calls, sandbox_id: str, path: str) -> Flow[bytes]:
    answer = yield from calls.call(_at("GET", sandbox_id, "", path))
    return answer.body


def write(calls: Calls, sandbox_id: str, path: str, data: bytes) -> Flow[FileAnswer]:
    """Idempotent: the whole file is replaced."""
    request = _at(
        "PUT", sandbox_id, "", path, content=lambda: _slices(data), size=len(data), **_OCTETS
    )
    return decode(FileAnswer, (yield from calls.json(request)))


def upload(
    calls: Calls, sandbox_id: str, source: Path, path: str, progress: Progress | None
) -> Flow[None]:
    """A file, also into an existing folder, or the contents of a folder."""
    if source.is_dir():
        yield from _upload_folder(calls, sandbox_id, source, path, progress)
        return
    if path.endswith("/") or (yield from _is_folder(calls, sandbox_id, path)):
        path = str(PurePosixPath(path) / source.name)
    mode = f"{source.stat().st_mode & 0o777:04o}"
    yield from _put(calls, sandbox_id, "", {"path": path, "mode": mode}, source, progress)


def download(
    calls: Calls, sandbox_id: str, path: str, target: Path, progress: Progress | None
) -> Flow[None]:
    """A file, or a folder with its contents. A file is written completely or not at all."""
    found = yield from _stat(calls, sandbox_id, path)
    if found.kind == "folder":
        yield from _download_folder(calls, sandbox_id, path, target, progress)
        return
    whole = target / found.name if target.is_dir() else target
    draft = whole.with_name(f"{whole.name}.part")
    try:
        request = _at("GET", sandbox_id, "", path, timeout_sec=_TRANSFER_SEC)
        yield from _save(calls, request, draft, progress)
        draft.replace(whole)
    finally:
        with suppress(OSError):
            draft.unlink()


def _stat(calls: Calls, sandbox_id: str, path: str) -> Flow[FileAnswer]:
    return decode(FileAnswer, (yield from calls.json(_at("GET", sandbox_id, "/stat", path))))


def _is_folder(calls: Calls, sandbox_id: str, path: str) -> Flow[bool]:
    try:
        return (yield from _stat(calls, sandbox_id, path)).kind == "folder"
    except NotFoundError as error:
        if error.code != "FILE_NOT_FOUND":
            raise
        return False


def list_folder(calls: Calls, sandbox_id: str, path: str, depth: int) -> Flow[list[FileAnswer]]:
    query: dict[str, str | int | None] = {"path": path, "depth": depth}
    found: list[FileAnswer] = []
    while True:
        request = about("GET", f"/sandboxes/{sandbox_id}/files/list", query=query)
        page = yield from calls.json(request)
        found += [decode(FileAnswer, each) for each in page["files"]]
        query["cursor"] = page.get("next_cursor")
        if query["cursor"] is None:
            return found


def remove(calls: Calls, sandbox_id: str, path: str) -> Flow[None]:
    """NotFoundError if it does not exist, unless an attempt whose response was lost removed it."""
    try:
        yield from calls.call(_at("DELETE", sandbox_id, "", path))
    except NotFoundError as error:
        if not error.may_be_done:
            raise


def _upload_folder(
    calls: Calls, sandbox_id: str, source: Path, path: str, progress: Progress | None
) -> Flow[None]:
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "folder.tar"
        yield from work(lambda: _pack(source, archive))
        yield from _put(calls, sandbox_id, "/tar", {"path": path}, archive, progress)


def put_tar(calls: Calls, request: Request, source: Path) -> Flow[Any]:
    """The JSON of the response to this request with a folder as a tar archive."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "folder.tar"
        yield from work(lambda: _pack(source, archive))
        size = archive.stat().st_size
        sent = replace(
            request,
            content=content_of(archive, size, None),
            size=size,
            timeout_sec=_TRANSFER_SEC,
            headers={**request.headers, "Content-Type": "application/octet-stream"},
        )
        return (yield from calls.json(sent))


def _download_folder(
    calls: Calls, sandbox_id: str, path: str, target: Path, progress: Progress | None
) -> Flow[None]:
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "folder.tar"
        request = _at("GET", sandbox_id, "/tar", path, timeout_sec=_TRANSFER_SEC)
        yield from _save(calls, request, archive, progress)
        yield from work(lambda: unpack(archive, target))


def _put(
    calls: Calls,
    sandbox_id: str,
    action: str,
    query: dict[str, str],
    source: Path,
    progress: Progress | None,
) -> Flow[None]:
    size = source.stat().st_size
    request = about(
        "PUT",
        f"/sandboxes/{sandbox_id}/files{action}",
        query=query,
        content=content_of(source, size, progress),
        size=size,
        timeout_sec=_TRANSFER_SEC,
        **_OCTETS,
    )
    yield from calls.call(request)


def _save(calls: Calls, request: Request, target: Path, progress: Progress | None) -> Flow[None]:
    """Starts over if the response is interrupted."""
    for attempt in range(1, _TRIES + 1):
        try:
            yield from _save_once(calls, request, target, progress)
        except ConnectionFailedError:
            if attempt == _TRIES:
                raise
        else:
            return


def _save_once(
    calls: Calls, request: Request, target: Path, progress: Progress | None
) -> Flow[None]:
    stream = yield from calls.open(request)
    length = stream.answer.headers.get("content-length")
    size = int(length) if length else None
    done = 0
    with target.open("wb") as file:
        while (piece := (yield from chunks(stream))) is not None:
            yield from _written(file, piece)
            done += len(piece)
            if progress is not None:
                progress(done, size)


def _written(file: IO[bytes], piece: bytes) -> Flow[int]:
    return work(lambda: file.write(piece))


def content_of(source: Path, size: int, progress: Progress | None) -> Content:
    def pieces() -> Iterator[bytes]:
        done = 0
        with source.open("rb") as file:
            while piece := file.read(min(_PIECE, size - done)):
                done += len(piece)
                if progress is not None:
                    progress(done, size)
                yield piece

    return pieces


def _slices(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE]


def _pack(source: Path, archive: Path) -> None:
    with tarfile.open(archive, "w") as tar:
        for child in sorted(source.iterdir()):
            tar.add(child, arcname=child.name)


_OCTETS: dict[str, Any] = {"headers": {"Content-Type": "application/octet-stream"}}


def _at(method: str, sandbox_id: str, action: str, path: str, **more: Any) -> Request:
    return about(method, f"/sandboxes/{sandbox_id}/files{action}", query={"path": path}, **more)

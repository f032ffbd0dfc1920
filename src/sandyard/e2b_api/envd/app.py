"""The calls to a sandbox, by their paths."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sandyard.e2b_api.envd import connect, files, filesystem, processes
from sandyard.e2b_api.envd.connect import Message, StreamPolicy
from sandyard.e2b_api.envd.filesystem import FilesystemService
from sandyard.e2b_api.envd.paths import user_of
from sandyard.e2b_api.envd.processes import ProcessService
from sandyard.e2b_api.sandboxes.entrance import Entrance, Inside, Visit
from sandyard.e2b_api.tokens import FileLink
from sandyard.kit.errors import (
    BodyTooLargeError,
    MethodNotAllowedError,
    NotFoundError,
    SandyardError,
)
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.runtime.model import Sample

Unary = Callable[[Inside, Message], Awaitable[Message]]
_PLAIN = frozenset({"/health", "/files", "/envs", "/metrics", "/init"})
Sampler = Callable[[Sandbox], Awaitable[Sample]]


class Envd:
    def __init__(self, entrance: Entrance, *, sample: Sampler, most_bytes: int, disk_bytes: int):
        self._entrance = entrance
        self._sample = sample
        self._most_bytes = most_bytes
        self._disk_bytes = disk_bytes
        self._processes = ProcessService(entrance)
        self._filesystem = FilesystemService()
        self._unary = _unary_calls(self._processes, self._filesystem)

    @staticmethod
    def takes(path: str) -> bool:
        """Whether the path belongs to this API, and not to the control API."""
        return Envd.is_rpc(path) or path in _PLAIN

    @staticmethod
    def is_rpc(path: str) -> bool:
        return path.startswith(("/process.Process/", "/filesystem.Filesystem/"))

    async def answer(self, request: Request, sandbox_id: str | None, path: str) -> Response:
        """Raises the errors of the sandbox and its session, and NotFoundError."""
        link = _link(request) if path == "/files" else None
        if sandbox_id is None:
            if link is None:
                raise NotFoundError
            sandbox_id = await self._entrance.find_signed(link)
        if path == "/health":
            await self._entrance.enter(sandbox_id)
            return Response(status_code=204)
        visit = Visit(sandbox_id, request.headers.get("x-access-token"), link)
        self._entrance.check(visit)
        request.state.log = {"target_id": sandbox_id}
        inside = await self._entrance.enter(sandbox_id)
        if self.is_rpc(path):
            return await self._call(inside, request, path)
        return await self._plain(inside, request, path)

    async def _plain(self, inside: Inside, request: Request, path: str) -> Response:
        if path == "/files":
            inside = await self._entrance.visitor(inside, request.query_params.get("username"))
            if request.method == "GET":
                return await files.download(inside, request)
            if request.method == "POST":
                return await files.upload(inside, request, most_bytes=self._most_bytes)
            raise MethodNotAllowedError
        if path == "/envs":
            return _json(dict(await self._entrance.variables(inside)))
        if path == "/metrics":
            return _json(self._metrics(inside, await self._sample(inside.sandbox)))
        raise NotFoundError

    async def _call(self, inside: Inside, request: Request, path: str) -> Response:
        inside = await self._entrance.visitor(inside, user_of(request))
        media_type = connect.media_type_of(request)
        if path.endswith("/StreamInput") and media_type == connect.STREAM:
            return await self._stream_input(inside, request)
        if (stream := self._streams(request).get(path)) and media_type == connect.STREAM:
            messages = connect.frames_of(request.stream(), most_bytes=self._most_bytes)
            message: Message = await anext(messages, {})
            events, keepalive = stream(inside, message)
            body = connect.streamed(events, StreamPolicy.of(request, keepalive))
            return StreamingResponse(body, media_type=connect.STREAM)
        if (unary := self._unary.get(path)) and media_type == connect.UNARY:
            return connect.answer(await unary(inside, connect.object_of(await self._body(request))))
        if path in self._unary or path in self._streams(request):
            return connect.unsupported()
        raise NotFoundError

    def _streams(
        self, request: Request
    ) -> dict[str, Callable[[Inside, Message], tuple[AsyncIterator[Message], Message]]]:
        deadline_sec = StreamPolicy.of(request, {}).deadline_sec
        start, join = self._processes.start, self._processes.connect
        return {
            "/process.Process/Start": lambda inside, message: (
                start(inside, message, deadline_sec=deadline_sec),
                processes.KEEPALIVE,
            ),
            "/process.Process/Connect": lambda inside, message: (
                join(inside, message),
                processes.KEEPALIVE,
            ),
            "/filesystem.Filesystem/WatchDir": lambda inside, message: (
                self._filesystem.watch_dir(inside, message),
                filesystem.KEEPALIVE,
            ),
        }

    async def _stream_input(self, inside: Inside, request: Request) -> Response:
        """Reads all input before the response begins, because sending it waits for the client to
        disconnect."""
        messages = connect.frames_of(request.stream(), most_bytes=self._most_bytes)
        try:
            body = connect.only(await self._processes.stream_input(inside, messages))
        except SandyardError as error:
            body = connect.failed(error)
        return Response(body, media_type=connect.STREAM)

    async def _body(self, request: Request) -> bytes:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > self._most_bytes:
                raise BodyTooLargeError
        return body

    def _metrics(self, inside: Inside, sample: Sample) -> dict[str, Any]:
        sandbox = inside.sandbox
        began = sandbox.started_at.timestamp() if sandbox.started_at else sample.at
        elapsed = max(1.0, sample.at - began)
        return {
            "ts": int(sample.at),
            "cpu_count": max(1, int(sandbox.cpu_spec)),
            "cpu_used_pct": round(sample.cpu_seconds / elapsed / sandbox.cpu_spec * 100, 2),
            "mem_total": int(sandbox.memory_spec * (1 << 30)),
            "mem_used": sample.memory_bytes,
            "disk_used": sample.storage_bytes,
            "disk_total": self._disk_bytes,
        }


def _unary_calls(process: ProcessService, file: FilesystemService) -> dict[str, Unary]:
    return {
        "/process.Process/List": process.list,
        "/process.Process/SendInput": process.send_input,
        "/process.Process/CloseStdin": process.close_stdin,
        "/process.Process/SendSignal": process.send_signal,
        "/process.Process/Update": process.update,
        "/filesystem.Filesystem/Stat": file.stat,
        "/filesystem.Filesystem/MakeDir": file.make_dir,
        "/filesystem.Filesystem/Move": file.move,
        "/filesystem.Filesystem/ListDir": file.list_dir,
        "/filesystem.Filesystem/Remove": file.remove,
        "/filesystem.Filesystem/CreateWatcher": file.create_watcher,
        "/filesystem.Filesystem/GetWatcherEvents": file.get_watcher_events,
        "/filesystem.Filesystem/RemoveWatcher": file.remove_watcher,
    }


def _link(request: Request) -> FileLink | None:
    query = request.query_params
    if not (signature := query.get("signature")):
        return None
    expires = query.get("signature_expiration", "")
    return FileLink(
        path=query.get("path", ""),
        operation="read" if request.method == "GET" else "write",
        username=query.get("username", ""),
        signature=signature,
        expires_at=int(expires) if expires.isascii() and expires.isdigit() else None,
    )


def _json(content: Any) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")

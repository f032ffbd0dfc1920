"""The calls to a machine, by their paths."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from sandyard.e2b_api.envd import connect, files, filesystem, processes
from sandyard.e2b_api.envd.connect import SANDBOX_ID, Message, StreamPolicy, json_response
from sandyard.e2b_api.envd.filesystem import FilesystemService
from sandyard.e2b_api.envd.machine import Credentials, Machine, Machines, UserSession
from sandyard.e2b_api.envd.paths import user_of
from sandyard.e2b_api.envd.processes import ProcessService
from sandyard.e2b_api.tokens import FileLink
from sandyard.kit.concurrency.streams import StreamLimit
from sandyard.kit.errors import SandyardError
from sandyard.kit.http.access_watch import watch_access

Endpoint = Callable[[Request], Awaitable[Response]]
Unary = Callable[[UserSession, Message], Awaitable[Message]]
Stream = Callable[[UserSession, Message, float | None], AsyncIterator[Message]]


class Envd:
    """An ASGI application. Raises the errors of the machine and its session."""

    def __init__(
        self,
        machines: Machines,
        *,
        upload_bytes: int,
        message_bytes: int,
        streams: int,
        has_watchers: bool = True,
    ) -> None:
        """The limits of an uploaded file, of a message, and of the open streams of a machine.
        Without `has_watchers`, changes of files are streamed only: the calls that ask for the
        events of a watch may come to other processes."""
        self._streams = StreamLimit(streams)
        self._machines = machines
        self._upload_bytes = upload_bytes
        self._message_bytes = message_bytes
        self._processes = ProcessService()
        self._filesystem = FilesystemService(has_watchers=has_watchers)
        self._router = Router(self._routes(), redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router({**scope, "app": self}, receive, send)

    def _routes(self) -> list[Route]:
        process, file = self._processes, self._filesystem
        calls: dict[str, Endpoint] = {
            "process.Process/Start": self._stream(process.start, processes.KEEPALIVE),
            "process.Process/Connect": self._stream(process.connect, processes.KEEPALIVE),
            "process.Process/StreamInput": self._stream_input,
            "process.Process/List": self._unary(process.list),
            "process.Process/SendInput": self._unary(process.send_input),
            "process.Process/CloseStdin": self._unary(process.close_stdin),
            "process.Process/SendSignal": self._unary(process.send_signal),
            "process.Process/Update": self._unary(process.update),
            "filesystem.Filesystem/WatchDir": self._stream(file.watch_dir, filesystem.KEEPALIVE),
            "filesystem.Filesystem/Stat": self._unary(file.stat),
            "filesystem.Filesystem/MakeDir": self._unary(file.make_dir),
            "filesystem.Filesystem/Move": self._unary(file.move),
            "filesystem.Filesystem/ListDir": self._unary(file.list_dir),
            "filesystem.Filesystem/Remove": self._unary(file.remove),
            "filesystem.Filesystem/CreateWatcher": self._unary(file.create_watcher),
            "filesystem.Filesystem/GetWatcherEvents": self._unary(file.get_watcher_events),
            "filesystem.Filesystem/RemoveWatcher": self._unary(file.remove_watcher),
        }
        return [
            Route("/health", self._health),
            Route("/files", self._download),
            Route("/files", self._upload, methods=["POST"]),
            Route("/envs", self._variables),
            Route("/metrics", self._metrics),
            *(Route(f"/{path}", call, methods=["POST"]) for path, call in calls.items()),
        ]

    async def _enter(self, request: Request, link: FileLink | None = None) -> Machine:
        machine = await self._machines.enter(_credentials(request, link))
        request.state.log = {"target_id": machine.id}
        watch_access(request.scope, machine.check_access)
        return machine

    async def _health(self, request: Request) -> Response:
        await self._machines.require_running(_credentials(request))
        return Response(status_code=204)

    async def _download(self, request: Request) -> Response:
        return await files.download(await self._file_session(request), request)

    async def _upload(self, request: Request) -> Response:
        session = await self._file_session(request)
        return await files.upload(session, request, most_bytes=self._upload_bytes)

    async def _file_session(self, request: Request) -> UserSession:
        machine = await self._enter(request, _link(request))
        return await machine.open(request.query_params.get("username"))

    async def _variables(self, request: Request) -> Response:
        machine = await self._enter(request)
        return json_response(dict(await machine.variables(await machine.open(None))))

    async def _metrics(self, request: Request) -> Response:
        return json_response(await (await self._enter(request)).metrics())

    async def _session(self, request: Request) -> UserSession:
        return await (await self._enter(request)).open(user_of(request))

    def _unary(self, call: Unary) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            session = await self._session(request)
            if connect.media_type_of(request) != connect.UNARY:
                return connect.unsupported()
            message = await connect.message_of_request(request, most_bytes=self._message_bytes)
            return json_response(await call(session, message))

        return endpoint

    def _stream(self, call: Stream, keepalive: Message) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            session = await self._session(request)
            if connect.media_type_of(request) != connect.STREAM:
                return connect.unsupported()
            message: Message = await anext(self._messages(request), {})
            policy = StreamPolicy.of(request, keepalive)
            machine_id = session.machine.id
            self._streams.check(machine_id)
            events = self._counted(machine_id, call(session, message, policy.deadline_sec))
            return StreamingResponse(connect.streamed(events, policy), media_type=connect.STREAM)

        return endpoint

    async def _counted(
        self, machine_id: str, events: AsyncIterator[Message]
    ) -> AsyncIterator[Message]:
        with self._streams.opened(machine_id):
            async with aclosing(events):  # type: ignore[type-var]
                async for event in events:
                    yield event

    async def _stream_input(self, request: Request) -> Response:
        """Reads all input before the response begins, because sending it waits for the client to
        disconnect."""
        session = await self._session(request)
        if connect.media_type_of(request) != connect.STREAM:
            return connect.unsupported()
        try:
            await self._processes.stream_input(session, self._messages(request))
            body = connect.only({})
        except SandyardError as error:
            body = connect.failed(error)
        return Response(body, media_type=connect.STREAM)

    def _messages(self, request: Request) -> AsyncIterator[Message]:
        return connect.frames_of(request.stream(), most_bytes=self._message_bytes)


def _credentials(request: Request, link: FileLink | None = None) -> Credentials:
    sandbox_id, token = request.scope.get(SANDBOX_ID), request.headers.get("x-access-token")
    return Credentials(sandbox_id, token, link)


def _link(request: Request) -> FileLink | None:
    query = request.query_params
    if not (signature := query.get("signature")):
        return None
    expires = query.get("signature_expiration", "")
    return FileLink(
        path=query.get("path", ""),
        operation="write" if request.method == "POST" else "read",
        username=query.get("username", ""),
        signature=signature,
        expires_at=int(expires) if expires.isascii() and expires.isdigit() else None,
    )

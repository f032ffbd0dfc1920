"""`python -m sandyard.e2b_api.envd.standalone.pod`: process 1 of a Pod. It serves the Pod's files,
processes and ports over TLS to who has its token, and keeps its deadline."""

import asyncio
import ctypes
import json
import os
import signal
import ssl
import sys
import tempfile
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing
from hmac import compare_digest
from typing import Any

import h11
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from sandyard.e2b_api.envd.app import Envd
from sandyard.e2b_api.envd.connect import ErrorBoundary
from sandyard.e2b_api.envd.standalone.commands import PodCommands
from sandyard.e2b_api.envd.standalone.lifetime import Lifetime, usage
from sandyard.e2b_api.envd.standalone.machine import ThisMachine
from sandyard.e2b_api.envd.standalone.server import serve
from sandyard.kit.errors import SandyardError
from sandyard.kit.http.held_streams import HeldStream
from sandyard.kit.sizes import MESSAGE_BYTES
from sandyard.runtime.guest import STATE, RefusedError
from sandyard.runtime.guest.__main__ import find
from sandyard.runtime.guest.processes import PROGRAM, read

_PORT = 49983
_MOST_BYTES = 1 << 40
_MOST_STREAMS = 1000
_THREADS = 256
_PIECE_BYTES = 1 << 20
_PR_SET_DUMPABLE = 4
_END = object()
_OF_COMMANDS = ("run_command", "follow", "wait")


class PodAgent:
    """An ASGI application: envd's calls, and those of the machine as a whole, below `/machine`."""

    def __init__(self, token: str, lifetime: Lifetime) -> None:
        self._token = token.encode()
        self._lifetime = lifetime
        self._recorded_at = 0.0
        """Since when the program was in the state that servers have recorded."""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="guest")
        self.machine = ThisMachine(token)
        self._commands = PodCommands(self.machine.processes)
        self._envd = ErrorBoundary(
            Envd(
                self.machine,
                upload_bytes=_MOST_BYTES,
                message_bytes=MESSAGE_BYTES,
                streams=_MOST_STREAMS,
            )
        )
        routes = [
            Route("/machine", self._describe),
            Route("/machine/deadline", self._move_deadline, methods=["POST"]),
            Route("/machine/end", self._end, methods=["POST"]),
            Route("/machine/exit", self._exit, methods=["POST"]),
            Route("/machine/program", self._describe_program),
            Route("/machine/tar", self._read_tar),
            Route("/machine/guest/{operation}", self._call, methods=["POST"]),
        ]
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/ready":
            await Response(status_code=503 if self._has_news() else 200)(scope, receive, send)
        elif not scope["path"].startswith("/machine"):
            await self._envd(scope, receive, send)
        elif not self._is_allowed(scope["headers"]):
            await Response(status_code=401)(scope, receive, send)
        else:
            await self._router(scope, receive, send)

    async def tunnel(self, request: h11.Request) -> tuple[StreamReader, StreamWriter] | int:
        """Connect to the port that the target names, as a program inside would."""
        if not self._is_allowed(list(request.headers)):
            return 401
        port = request.target.rpartition(b":")[2]
        for address in ("127.0.0.1", "::1"):
            try:
                return await asyncio.open_connection(address, int(port))
            except (OSError, ValueError, OverflowError):
                continue
        return 502

    def _is_allowed(self, headers: list[tuple[bytes, bytes]]) -> bool:
        return compare_digest(dict(headers).get(b"x-access-token", b""), self._token)

    async def _describe(self, _request: Request) -> Response:
        lifetime = self._lifetime
        return JSONResponse(
            {"deadline_at": lifetime.deadline_at, "ended": lifetime.ended, **usage()}
        )

    async def _describe_program(self, request: Request) -> Response:
        self._recorded_at = float(request.query_params["recorded_at"])
        return JSONResponse(read(STATE, PROGRAM))

    def _has_news(self) -> bool:
        """Whether something happened that no server has recorded. The kubelet asks, so that the
        cluster's watch tells the servers which Pods to ask: no server asks all of them."""
        program = read(STATE, PROGRAM)
        is_new = program is not None and float(program["since_at"]) > self._recorded_at
        return is_new or self._lifetime.ended is not None

    async def _move_deadline(self, request: Request) -> Response:
        is_moved = self._lifetime.move(float((await request.json())["at"]))
        return Response(status_code=204 if is_moved else 409)

    async def _end(self, request: Request) -> Response:
        await self._lifetime.end(str((await request.json())["reason"]))
        return JSONResponse(self._lifetime.ended)

    async def _exit(self, _request: Request) -> Response:
        asyncio.get_running_loop().call_later(0.01, self._lifetime.exit)
        return Response(status_code=204)

    async def _call(self, request: Request) -> Response:
        operation, arguments = request.path_params["operation"], await request.json()
        if await self._commands.has(operation, arguments):
            messages = self._commands.messages(operation, arguments)
        else:
            messages = self._messages(find(operation), arguments)
        lines = _lines(messages)
        if operation in _OF_COMMANDS and self._lifetime.ended is None:
            lines = self._until_end(lines)
        answer = HeldStream(lines, media_type="application/x-ndjson")
        answer.held = AsyncExitStack()
        answer.held.push_async_callback(lines.aclose)
        return answer

    async def _until_end(self, lines: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        """Cut at the end of the machine, which is not that of the command alone."""
        async with aclosing(lines):
            async for each in lines:
                if self._lifetime.ended is not None:
                    raise ConnectionError("the machine has ended")
                yield each

    async def _read_tar(self, request: Request) -> Response:
        """The folder as an archive, by a process of its own: packing changes its folder."""
        # `sys.orig_argv` begins with the loader that runs this interpreter, if one does.
        interpreter = sys.orig_argv[: sys.orig_argv.index("-m")]
        words = ("-m", "sandyard.e2b_api.envd.standalone.tar", request.query_params["path"])
        packing = await asyncio.create_subprocess_exec(*interpreter, *words, stdout=PIPE)
        self.machine.children.add(packing.pid)
        assert packing.stdout is not None  # noqa: S101 - by PIPE
        is_packed = (await packing.stdout.readline()).strip()
        if is_packed == b"{}":
            return StreamingResponse(self._packed(packing), media_type="application/x-tar")
        await packing.wait()
        self.machine.children.discard(packing.pid)
        return Response(is_packed, 409, media_type="application/json")

    async def _packed(self, packing: Process) -> AsyncIterator[bytes]:
        assert packing.stdout is not None  # noqa: S101 - by PIPE
        try:
            while piece := await packing.stdout.read(_PIECE_BYTES):
                yield piece
            if await packing.wait():
                raise ConnectionError("the archive is incomplete")
        finally:
            if packing.returncode is None:
                packing.kill()
                await packing.wait()
            self.machine.children.discard(packing.pid)

    async def _messages(
        self, call: Callable[..., Any], arguments: dict[str, Any]
    ) -> AsyncGenerator[dict[str, Any]]:
        run = asyncio.get_running_loop().run_in_executor
        result: Any = None
        try:
            result = await run(self._threads, lambda: call(**arguments))
            if isinstance(result, Iterator):
                while (item := await run(self._threads, next, result, _END)) is not _END:
                    if item is not None:
                        yield {"item": item}
                result = None
            yield {"result": result}
        finally:
            if isinstance(result, Iterator):
                result.close()  # type: ignore[attr-defined]


async def _lines(messages: AsyncGenerator[dict[str, Any]]) -> AsyncGenerator[bytes]:
    """As the guest writes them when it is a process of its own."""
    try:
        async with aclosing(messages):
            async for each in messages:
                yield _line(each)
    except (RefusedError, SandyardError) as refused:
        yield _line({"refused": refused.code, "message": str(refused)})
    except OSError as error:
        yield _line({"errno": error.errno or 0, "message": str(error)})


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


async def run(token: str, tls: ssl.SSLContext, deadline_at: float) -> None:
    lifetime = Lifetime(deadline_at)
    agent = PodAgent(token, lifetime)
    loop = asyncio.get_running_loop()
    ending: list[asyncio.Task[None]] = []
    loop.add_signal_handler(
        signal.SIGTERM, lambda: ending.append(loop.create_task(lifetime.end("terminated")))
    )
    server = await serve(agent, "0.0.0.0", _PORT, tls=tls, tunnel=agent.tunnel)  # noqa: S104
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.gather(
        server.serve_forever(), lifetime.keep(), lifetime.reap(agent.machine.children)
    )


def main() -> None:
    """What is secret comes by the environment, which no other process can read from here on."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    names = ("TOKEN", "CERTIFICATE", "KEY", "DEADLINE_AT")
    token, certificate, key, deadline_at = (os.environ.pop(f"SANDYARD_{name}") for name in names)
    asyncio.run(run(token, _tls(certificate, key), float(deadline_at)))


def _tls(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with tempfile.NamedTemporaryFile("w") as file:  # OpenSSL reads files alone
        file.write(certificate + key)
        file.flush()
        context.load_cert_chain(file.name)
    return context


if __name__ == "__main__":
    main()

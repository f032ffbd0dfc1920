"""Calls about the commands of a sandbox."""

import re
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from sandyard.kit.errors import SandyardError
from sandyard.kit.http.routes import GuardedRoutes
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.open_streams import stream_end, until_over
from sandyard.platform.access.routes import Caller, inside_routes
from sandyard.platform.sandboxes.http import SandboxId
from sandyard.platform.sessions.commands import schemas
from sandyard.platform.sessions.commands.output import Encoding, in_whole_characters, joined
from sandyard.platform.sessions.commands.service import SHOWN_BYTES, Commands
from sandyard.runtime.sessions.model import Output, Process

MEDIA_TYPE = "text/event-stream"
_SILENT = b": still running\n\n"
"""A comment, so that no proxy takes the connection for dead."""


def output_event(output: Output, encoding: Encoding) -> bytes:
    """Its id is the offset, which `Last-Event-ID` sends back after a lost connection."""
    piece = schemas.OutputPiece.of(output, encoding)
    data = orjson.dumps({"data": piece.data, "skipped": piece.skipped, "encoding": encoding})
    return b"event: %s\nid: %d\ndata: %s\n\n" % (piece.stream.encode(), piece.offset, data)


def exit_event(process: Process) -> bytes:
    return b"event: exit\ndata: %s\n\n" % orjson.dumps({"exit_code": process.exit_code})


def ended_event(error: SandyardError) -> bytes:
    """Why the command can no longer be followed."""
    return b"event: ended\ndata: %s\n\n" % orjson.dumps(
        {"code": error.code, "message": error.message}
    )


def as_event(output: Output | None, encoding: Encoding) -> bytes:
    return _SILENT if output is None else output_event(output, encoding)


_EVENT_ID = re.compile(r"[0-9]{1,15}")

CommandId = Annotated[
    str, Path(max_length=32, description="The id from the response that started it")
]
Offset = Annotated[int, Query(ge=0, le=2**53, description="In bytes, over all streams")]
OutputEncoding = Annotated[
    Encoding, Query(description="Encoding of the output: text, or base64 for exact bytes")
]
LAST_EVENT_ID = {
    "in": "header",
    "name": "Last-Event-ID",
    "description": "As browsers send it after a lost connection; goes before `offset`",
    "schema": {"type": "string"},
}

_OUTPUT_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "model": schemas.OutputAnswer,
        "description": "What it wrote; as server-sent events, if it is followed",
        "content": {
            MEDIA_TYPE: {
                "schema": {"type": "string"},
                "example": 'id: 6\nevent: stdout\ndata: {"data": "hello\\n"}\n\n',
            }
        },
    }
}


def create_commands_router(commands: Commands, guard: AccessGuard) -> APIRouter:
    routes = inside_routes(guard, "/sandboxes/{sandbox_id}/commands", tag="commands")
    _add_starting(routes, commands)
    _add_output(routes, commands, guard)
    _add_control(routes, commands)
    return routes.router


def _add_starting(routes: GuardedRoutes, commands: Commands) -> None:
    @routes.make("", "Run a command", 404, status_code=201, finds_made=False)
    async def run_command(
        caller: Caller, sandbox_id: SandboxId, body: schemas.NewCommandBody
    ) -> schemas.CommandAnswer:
        """Returns when the command has ended, or after `timeout_sec`: it is then killed with its
        process group, or left running, as `on_timeout` says. With `background` it returns at
        once."""
        account_id, command = caller.account_id, body.new()
        if body.background:
            started = await commands.start(sandbox_id, command, account_id=account_id)
            return schemas.CommandAnswer.of(started)
        result = await commands.run(sandbox_id, command, body.wait(), account_id=account_id)
        return schemas.CommandAnswer.of(
            result.process, schemas.ResultAnswer.of(result, body.encoding)
        )

    @routes.get("", "List commands", 404, 409)
    async def list_commands(caller: Caller, sandbox_id: SandboxId) -> schemas.CommandList:
        """Running commands, and some that have ended."""
        found = await commands.list(sandbox_id, account_id=caller.account_id)
        return schemas.CommandList(commands=[schemas.CommandAnswer.of(each) for each in found])

    @routes.get("/{command_id}", "Get a command", 404, 409)
    async def get_command(
        caller: Caller, sandbox_id: SandboxId, command_id: CommandId
    ) -> schemas.CommandAnswer:
        """Whether it runs, and how it ended."""
        found = await commands.get(sandbox_id, command_id, account_id=caller.account_id)
        return schemas.CommandAnswer.of(found)


def _add_output(routes: GuardedRoutes, commands: Commands, guard: AccessGuard) -> None:
    @routes.get(
        "/{command_id}/output",
        "Get a command's output",
        *(404, 409),
        response_class=Response,
        answers=_OUTPUT_ANSWER,
        described={"parameters": [LAST_EVENT_ID]},
    )
    async def get_command_output(
        request: Request,
        caller: Caller,
        sandbox_id: SandboxId,
        command_id: CommandId,
        offset: Offset = 0,
        encoding: OutputEncoding = Encoding.TEXT,
        follow: Annotated[bool, Query(description="Stream it live until it has ended")] = False,  # noqa: FBT002
    ) -> Response:
        """From `offset` on, up to a MiB. With `follow` it is streamed live, as the events `stdout`,
        `stderr` or `terminal`, and finally `exit`, or `ended` with an error's `code` if it can no
        longer be followed. After a lost connection, `Last-Event-ID` continues where it was."""
        account_id = caller.account_id
        if not follow:
            process, found = await commands.output(
                sandbox_id, command_id, account_id=account_id, offset=offset
            )
            is_last = sum(len(each.data) for each in found) < SHOWN_BYTES
            whole = [each async for each in _encodable(_each(found), encoding)]
            answer = schemas.OutputAnswer.of(
                process, joined(whole), offset=offset, encoding=encoding, is_last=is_last
            )
            return Response(answer.model_dump_json(), media_type="application/json")
        guard.streams.check(account_id)
        last_id = request.headers.get("last-event-id", "")
        begin = int(last_id) if _EVENT_ID.fullmatch(last_id) else offset
        outputs = await commands.follow(sandbox_id, command_id, account_id=account_id, offset=begin)

        async def events() -> AsyncIterator[bytes]:
            whole = _encodable(outputs, encoding)
            try:
                with stream_end(request, guard, caller) as is_over:
                    async for output in until_over(whole, is_over):
                        yield as_event(output, encoding)
                found = await commands.get(sandbox_id, command_id, account_id=account_id)
            except SandyardError as error:
                yield ended_event(error)
                return
            if not found.is_running:
                yield exit_event(found)

        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(events(), media_type=MEDIA_TYPE, headers=headers)


def _add_control(routes: GuardedRoutes, commands: Commands) -> None:
    @routes.post("/{command_id}/input", "Write to a command's input", 404, 409, status_code=204)
    async def write_command_input(
        caller: Caller, sandbox_id: SandboxId, command_id: CommandId, body: schemas.InputBody
    ) -> None:
        """Returns when the command has read it. The command must have been started with `has_input`
        or a terminal."""
        await commands.write_input(
            sandbox_id,
            command_id,
            body.sent_bytes(),
            account_id=caller.account_id,
            closes=body.close,
        )

    @routes.post("/{command_id}/signal", "Send a signal to a command", 404, 409)
    async def signal_command(
        caller: Caller, sandbox_id: SandboxId, command_id: CommandId, body: schemas.SignalBody
    ) -> schemas.CommandAnswer:
        """Sent to the command and its process group; no effect if it has ended."""
        found = await commands.signal(
            sandbox_id, command_id, body.signal.number, account_id=caller.account_id
        )
        return schemas.CommandAnswer.of(found)

    @routes.delete("/{command_id}", "Kill a command", 404, 409)
    async def kill_command(
        caller: Caller, sandbox_id: SandboxId, command_id: CommandId
    ) -> schemas.CommandAnswer:
        """With its process group. Its output can still be read."""
        killed = await commands.kill(sandbox_id, command_id, account_id=caller.account_id)
        return schemas.CommandAnswer.of(killed)


def _encodable(outputs: AsyncIterator[Output], encoding: Encoding) -> AsyncIterator[Output]:
    return in_whole_characters(outputs) if encoding is Encoding.TEXT else outputs


async def _each(found: Sequence[Output]) -> AsyncIterator[Output]:
    for output in found:
        yield output

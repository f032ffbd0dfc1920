"""Streams a command's output as server-sent events."""

import orjson

from sandyard.kit.errors import SandyardError
from sandyard.platform.sessions.commands.output import Encoding
from sandyard.platform.sessions.commands.schemas import OutputPiece
from sandyard.runtime.sessions.model import Output, Process

MEDIA_TYPE = "text/event-stream"
_SILENT = b": still running\n\n"
"""A comment, so that no proxy takes the connection for dead."""


def output_event(output: Output, encoding: Encoding) -> bytes:
    """Its id is the offset, which `Last-Event-ID` sends back after a lost connection."""
    piece = OutputPiece.of(output, encoding)
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

"""Streams a command's output as server-sent events."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import TypeVar

import orjson

from sandyard.kit.errors import SandyardError
from sandyard.platform.sessions.commands.output import Encoding
from sandyard.platform.sessions.commands.schemas import OutputPiece
from sandyard.runtime.sessions.model import Output, Process

T = TypeVar("T")

MEDIA_TYPE = "text/event-stream"
_POLL_SEC = 0.2
_SILENCE_SEC = 15
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


async def until_stopping(
    items: AsyncIterator[T], is_stopping: Callable[[], bool]
) -> AsyncIterator[T | None]:
    """The items, and None now and then during a long silence. Ends when the server stops, even if
    the command does not."""
    async with aclosing(items):  # type: ignore[type-var]
        silent_sec = 0.0
        item = asyncio.ensure_future(anext(items, None))
        try:
            while not is_stopping():
                await asyncio.wait({item}, timeout=_POLL_SEC)
                if not item.done():
                    silent_sec += _POLL_SEC
                    if silent_sec >= _SILENCE_SEC:
                        silent_sec = 0.0
                        yield None
                    continue
                if (found := item.result()) is None:
                    return
                silent_sec = 0.0
                item = asyncio.ensure_future(anext(items, None))
                yield found
        finally:
            item.cancel()
            await asyncio.wait({item})


def as_event(output: Output | None, encoding: Encoding) -> bytes:
    return _SILENT if output is None else output_event(output, encoding)

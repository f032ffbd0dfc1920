"""Log lines: JSON for machines, text for people; no secrets in either."""

import asyncio
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, TextIO

import orjson

_PLAIN_ATTRIBUTES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}
_context: ContextVar[Mapping[str, Any]] = ContextVar("log_context", default=MappingProxyType({}))


@contextmanager
def log_context(**fields: Any) -> Iterator[None]:
    """Add `fields` to every line logged inside the block."""
    token = _context.set({**_context.get(), **fields})
    try:
        yield
    finally:
        _context.reset(token)


def configure_logging(level: str, form: Literal["auto", "json", "text"]) -> None:
    handler = LineHandler(sys.stderr)
    is_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(TextFormatter() if is_text else JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # Our formats do not show these, so do not collect them for every line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - as the standard library advises
    # httpx logs each request's URL at info: useful only for debugging.
    for chatty in ("httpx", "httpcore", "_granian", "granian"):
        logging.getLogger(chatty).setLevel(logging.DEBUG if level == "DEBUG" else logging.WARNING)


def log_info(logger: logging.Logger, message: str, fields: Mapping[str, Any]) -> None:
    """`logger.info(message, extra=fields)`, for lines that are written thousands of times a second.

    If ours is the only handler and writes JSON, the line goes to it without a `LogRecord`, which
    costs five times as much as the line.
    """
    if not logger.isEnabledFor(logging.INFO):
        return
    handlers = logging.root.handlers
    handler = handlers[0] if len(handlers) == 1 and not logger.handlers else None
    if isinstance(handler, LineHandler) and isinstance(handler.formatter, JsonFormatter):
        handler.write(_json_line(time.time(), "info", logger.name, message, fields))
    else:
        logger.info(message, extra=fields)


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes the lines of one event loop iteration together; warnings and errors at once.

    A write releases the GIL and then waits to get it back: one per request is too many. Lines that
    can't be written, for example on a full disk, are dropped and counted: logging never raises, and
    the next line that can be written is preceded by one with the count.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        self.write(line, at_once=record.levelno >= logging.WARNING)

    def write(self, line: str, *, at_once: bool = False) -> None:
        self._lines.append(f"{line}\n")
        loop = asyncio._get_running_loop()  # noqa: SLF001 - the public one raises if there is none
        if at_once or loop is None:
            self.flush()
        elif len(self._lines) == 1:
            loop.call_soon(self.flush)

    def flush(self) -> None:
        with self.lock or nullcontext():
            lines, self._lines = self._lines, []
            if lines and not self.stream.closed:
                self._write_lines(lines)

    def _write_lines(self, lines: Sequence[str]) -> None:
        try:
            self.stream.write("".join([*self._told_lost(), *lines]))
            self.stream.flush()
        except OSError:
            self._lost += len(lines)
        else:
            self._lost = 0

    def _told_lost(self) -> Sequence[str]:
        """On its own line, as the last one may have been written only in part."""
        if not self._lost:
            return ()
        fields = {"name": __name__, "levelname": "WARNING", "lost": self._lost}
        failure = {"msg": "log lines could not be written", "levelno": logging.WARNING}
        return "\n", self.format(logging.makeLogRecord(fields | failure)), "\n"


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = _extra(record)
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        level = record.levelname.lower()
        return _json_line(record.created, level, record.name, record.getMessage(), fields)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {**_context.get(), **_extra(record)}
        parts = [
            _rfc3339(record.created)[11:23],
            f"{record.levelname.lower():7}",
            record.getMessage(),
            *(f"{name}={value}" for name, value in fields.items() if value is not None),
        ]
        text = " ".join(parts)
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _json_line(at: float, level: str, logger: str, message: str, fields: Mapping[str, Any]) -> str:
    line = {
        "time": _rfc3339(at),
        "level": level,
        "logger": logger,
        "message": message,
        **_context.get(),
        **fields,
    }
    return orjson.dumps(line, default=str).decode()


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {k: v for k, v in record.__dict__.items() if k not in _PLAIN_ATTRIBUTES}


def _rfc3339(at: float) -> str:
    return _millisecond(int(at * 1000))


@lru_cache(maxsize=8)
def _millisecond(at_ms: int) -> str:
    """Cached, as many lines share a millisecond."""
    return f"{_second(at_ms // 1000)}.{at_ms % 1000:03d}Z"


@lru_cache(maxsize=8)
def _second(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))

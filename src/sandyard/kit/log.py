"""Log lines: JSON for machines, text for people; nothing secret in either."""

import asyncio
import logging
import sys
import time
from collections.abc import Iterator, Mapping
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
    """Add `fields` to every line that is logged inside."""
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
    # What no line of ours shows need not be collected for every line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - as the standard library advises
    # httpx logs each request's URL at info, the migrations each step: detail for debugging only.
    for chatty in ("httpx", "httpcore", "alembic", "_granian", "granian"):
        logging.getLogger(chatty).setLevel(logging.DEBUG if level == "DEBUG" else logging.WARNING)


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes the lines of one turn of the event loop together; warnings and worse at once.

    A write lets other threads run, and then waits for them: one for each request is too many.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        self._lines.append(f"{line}\n")
        loop = asyncio._get_running_loop()  # noqa: SLF001 - the public one raises if there is none
        if loop is None or record.levelno >= logging.WARNING:
            self.flush()
        elif len(self._lines) == 1:
            loop.call_soon(self.flush)

    def flush(self) -> None:
        with self.lock or nullcontext():
            lines, self._lines = self._lines, []
            if lines and not self.stream.closed:
                self.stream.write("".join(lines))
                super().flush()


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_context.get(),
            **_extra(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


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


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {k: v for k, v in record.__dict__.items() if k not in _PLAIN_ATTRIBUTES}


def _rfc3339(at: float) -> str:
    return f"{_second(int(at))}.{int(at * 1000) % 1000:03d}Z"


@lru_cache(maxsize=8)
def _second(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))

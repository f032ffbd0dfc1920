"""Log lines in both forms."""

import asyncio
import errno
import io
import logging
import re
import sys
from collections.abc import Iterator
from typing import Literal

import orjson
import pytest

from sandyard.kit.observability.log import (
    JsonFormatter,
    LineHandler,
    TextFormatter,
    configure_logging,
    log_context,
    log_info,
)


def record(**extra: object) -> logging.LogRecord:
    made = logging.LogRecord("sandyard.x", logging.INFO, __file__, 1, "hello %s", ("you",), None)
    made.__dict__.update(extra)
    return made


def test_json_has_the_message_and_every_field() -> None:
    with log_context(request_id="r1"):
        line = orjson.loads(JsonFormatter().format(record(track_id="t", path=b"bytes")))
    assert line["message"] == "hello you"
    assert (line["level"], line["logger"]) == ("info", "sandyard.x")
    assert (line["request_id"], line["track_id"]) == ("r1", "t")
    assert line["time"].endswith("Z")


def test_text_is_one_line_for_people() -> None:
    text = TextFormatter().format(record(track_id="t", nothing=None))
    assert text.endswith("info    hello you track_id=t")


def test_a_traceback_is_kept_in_its_field() -> None:
    try:
        raise ValueError("inside")
    except ValueError:
        made = record()
        made.exc_info = sys.exc_info()
    assert "ValueError: inside" in orjson.loads(JsonFormatter().format(made))["traceback"]
    assert "ValueError: inside" in TextFormatter().format(made)


class TestLinesThatAreWrittenTogether:
    async def test_those_of_one_turn_of_the_loop_are(self) -> None:
        written = io.StringIO()
        handler = LineHandler(written)
        handler.handle(record())
        handler.handle(record())
        assert written.getvalue() == ""
        await asyncio.sleep(0)
        assert written.getvalue() == "hello you\nhello you\n"

    async def test_a_warning_waits_for_nothing_and_keeps_its_place(self) -> None:
        written = io.StringIO()
        handler = LineHandler(written)
        handler.handle(record())
        warning = record()
        warning.levelno, warning.args = logging.WARNING, ("all",)
        handler.handle(warning)
        assert written.getvalue() == "hello you\nhello all\n"

    def test_without_a_loop_nothing_waits(self) -> None:
        written = io.StringIO()
        LineHandler(written).handle(record())
        assert written.getvalue() == "hello you\n"

    async def test_the_end_of_logging_writes_what_is_left(self) -> None:
        written = io.StringIO()
        handler = LineHandler(written)
        handler.handle(record())
        handler.flush()
        assert written.getvalue() == "hello you\n"

    async def test_a_line_that_can_not_be_made_is_no_ones_trouble(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        broken = record()
        broken.args = ("too", "many")
        LineHandler(io.StringIO()).handle(broken)
        assert "not all arguments converted" in capsys.readouterr().err

    async def test_lines_that_can_not_be_written_are_no_ones_trouble_and_are_told_later(
        self,
    ) -> None:
        written = FullDisk()
        handler = LineHandler(written)
        handler.setFormatter(JsonFormatter())
        failures: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context))
        for level in (logging.INFO, logging.ERROR, logging.INFO):
            handler.handle(record(levelno=level))
        await asyncio.sleep(0)
        handler.flush()
        assert (failures, written.getvalue()) == ([], "")
        written.is_full = False
        for _ in range(2):
            handler.handle(record())
            handler.flush()
        ended, told, *others = written.getvalue().splitlines()
        assert (ended, len(others)) == ("", 2)
        assert orjson.loads(told)["message"] == "log lines could not be written"
        assert (orjson.loads(told)["level"], orjson.loads(told)["lost"]) == ("warning", 3)


class FullDisk(io.StringIO):
    is_full = True

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


class TestLinesWithoutARecord:
    @pytest.fixture(autouse=True)
    def own_handlers(self) -> Iterator[None]:
        """Those of the test run come back afterwards."""
        handlers, level = [*logging.root.handlers], logging.root.level
        yield
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)

    @pytest.mark.parametrize("form", ["json", "text"])
    def test_they_are_the_same_as_those_with_one(
        self, form: Literal["json", "text"], capsys: pytest.CaptureFixture[str]
    ) -> None:
        logger = logging.getLogger("sandyard.x")
        fields = {"track_id": "t", "status": 201}
        configure_logging("INFO", form)
        with log_context(request_id="r1"):
            log_info(logger, "request", fields)
            logger.info("request", extra=fields)
        quick, usual = (_without_time(line) for line in capsys.readouterr().err.splitlines())
        assert quick == usual
        assert "track_id" in quick

    def test_a_level_that_is_not_wanted_writes_nothing(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        configure_logging("WARNING", "json")
        log_info(logging.getLogger("sandyard.x"), "request", {})
        assert capsys.readouterr().err == ""

    def test_another_handler_gets_a_record(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO):
            log_info(logging.getLogger("sandyard.x"), "request", {"track_id": "t"})
        assert caplog.records[0].__dict__["track_id"] == "t"


def _without_time(line: str) -> str:
    return re.sub(r"\d\d:\d\d:\d\d\.\d{3}", "", line)

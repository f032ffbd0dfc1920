"""Log lines in both forms."""

import asyncio
import io
import logging
import sys

import orjson
import pytest

from sandyard.kit.log import JsonFormatter, LineHandler, TextFormatter, log_context


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

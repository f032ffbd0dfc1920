"""Log lines in both forms."""

import logging
import sys

import orjson

from sandyard.kit.log import JsonFormatter, TextFormatter, log_context


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

"""Connect's frames, errors and streams."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from sandyard.e2b_api.envd.connect import (
    Message,
    StreamPolicy,
    error_of,
    failed,
    frame,
    frames_of,
    object_of,
    streamed,
)
from sandyard.e2b_api.errors import FolderExistsError, InvalidRequestError, SandboxGoneError
from sandyard.kit.errors import BodyTooLargeError, SandyardError, UnavailableError
from sandyard.runtime.errors import (
    CommandRefusedError,
    FileMissingError,
    NotRunningError,
    StorageFullError,
)


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def events(*messages: Message, then: SandyardError | None = None) -> AsyncIterator[Message]:
    for message in messages:
        yield message
    if then is not None:
        raise then


def policy(**changes: object) -> StreamPolicy:
    return StreamPolicy(is_stopping=lambda: False, keepalive={"k": 1}, **changes)  # type: ignore[arg-type]


async def test_frames_come_whole_however_they_are_cut() -> None:
    content = frame({"a": 1}) + frame({"b": "é"}) + frame({}, 2) + b"rest"
    for size in (1, 3, 7, len(content)):
        cut = [content[at : at + size] for at in range(0, len(content), size)]
        found = [each async for each in frames_of(pieces(*cut), most_bytes=100)]
        assert found == [{"a": 1}, {"b": "é"}]


async def test_frames_that_are_too_large_or_compressed_are_refused() -> None:
    with pytest.raises(BodyTooLargeError):
        await anext(frames_of(pieces(frame({"a": "x" * 100})), most_bytes=50))
    with pytest.raises(InvalidRequestError):
        await anext(frames_of(pieces(frame({"a": 1}, 1)), most_bytes=50))


@pytest.mark.parametrize("body", [b"[1]", b"{", b'"a"', b"\xff"])
def test_a_message_is_an_object(body: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        object_of(body)
    assert object_of(b"") == {}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FileMissingError(), "not_found"),
        (FolderExistsError(), "already_exists"),
        (CommandRefusedError(), "invalid_argument"),
        (StorageFullError(), "resource_exhausted"),
        (NotRunningError(), "unavailable"),
        (SandboxGoneError(), "unavailable"),
        (UnavailableError(), "unavailable"),
        (SandyardError(), "internal"),
    ],
)
def test_errors_have_connect_s_codes(error: SandyardError, code: str) -> None:
    assert error_of(error)["code"] == code


def test_a_sandbox_that_is_gone_is_told_in_the_words_that_sdks_know() -> None:
    assert error_of(NotRunningError())["message"] == "The sandbox was not found"


async def test_a_stream_ends_with_its_last_frame() -> None:
    whole = b"".join([each async for each in streamed(events({"a": 1}), policy())])
    assert whole == frame({"a": 1}) + frame({}, 2)
    error = FileMissingError()
    broken = [each async for each in streamed(events({"a": 1}, then=error), policy())]
    assert broken == [frame({"a": 1}), failed(error)]


async def test_a_stream_that_is_silent_gives_signs_of_life_until_its_deadline() -> None:
    async def silent() -> AsyncIterator[Message]:
        await asyncio.Event().wait()
        yield {}

    limits = policy(keepalive_sec=0.02, deadline_sec=0.1)
    found = [each async for each in streamed(silent(), limits)]
    assert found[0] == frame({"k": 1})
    assert b"deadline_exceeded" in found[-1]


async def test_a_server_that_stops_breaks_a_stream_off() -> None:
    stopping = StreamPolicy(is_stopping=lambda: True, keepalive={})
    assert [each async for each in streamed(events({"a": 1}), stopping)] == []

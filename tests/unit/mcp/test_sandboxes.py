"""Tools of sandboxes: what they return of long outputs, and what they say of errors."""

import re
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from mcp.server.mcpserver.exceptions import ToolError

from sandyard.kit.http.inner_calls import InnerResponse
from sandyard.mcp.api import Calls
from sandyard.mcp.sandboxes import OUTPUT_BYTES, edit_file, read_file, read_output

COMMAND = {"command_id": "c", "exit_code": 0, "is_running": False}


class WrittenApi:
    """Answers by path: JSON, bytes that `Range` selects from, or a status with an error."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers

    async def send(
        self, _method: str, path: str, _query: str, headers: Mapping[str, str], _body: bytes
    ) -> InnerResponse:
        found = self.answers[path.rpartition("/sandboxes/s/")[2]]
        if isinstance(found, tuple):
            return InnerResponse(found[0], [], orjson.dumps({"error": found[1]}))
        if isinstance(found, bytes):
            span = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", ""))
            part = found[int(span[1]) : int(span[2]) + 1] if span else found
            return InnerResponse(206, [], part)
        return InnerResponse(200, [], orjson.dumps(found))


def calls(**answers: Any) -> Calls:
    return Calls(WrittenApi({name.replace("__", "/"): each for name, each in answers.items()}))


def written(*pieces: tuple[str, str]) -> dict[str, Any]:
    """The API's response for this output."""
    output, end = [], 0
    for stream, data in pieces:
        end += len(data.encode())
        output.append({"stream": stream, "data": data, "offset": end, "skipped": 0})
    return {"output": output, "next_offset": end, "is_complete": True}


async def test_a_short_output_is_whole_with_the_exit_code() -> None:
    api = calls(
        commands__c__output=written(("stdout", "a\n"), ("stderr", "b\n")), commands__c=COMMAND
    )
    assert await read_output(api, "s", "c") == {
        "stdout": "a\n",
        "stderr": "b\n",
        "next_offset": 4,
        "is_complete": True,
        "exit_code": 0,
    }


@pytest.mark.parametrize("before", ["", "x"])
async def test_a_long_output_is_cut_between_characters_and_goes_on_there(before: str) -> None:
    text = before + "é" * OUTPUT_BYTES
    api = calls(commands__c__output=written(("stdout", text)), commands__c=COMMAND)
    found = await read_output(api, "s", "c")
    assert found["is_complete"] is False
    shown = found["stdout"].encode()
    assert text.encode().startswith(shown)
    assert OUTPUT_BYTES - 1 <= len(shown) == found["next_offset"] <= OUTPUT_BYTES


async def test_a_file_is_read_in_parts_that_make_the_whole() -> None:
    content = ("é" * OUTPUT_BYTES + "end").encode()
    api = calls(files__stat={"size_bytes": len(content)}, files=content)
    read, offset = "", 0
    while offset < len(content):
        part = await read_file(api, "s", "f", offset)
        read, offset = read + part["text"], part["next_offset"]
    assert read.encode() == content


async def test_bytes_that_are_no_text_come_as_base64() -> None:
    api = calls(files__stat={"size_bytes": 2}, files=b"\xff\xfe")
    assert await read_file(api, "s", "f") == {"base64": "//4=", "next_offset": 2, "size": 2}


@pytest.mark.parametrize("content", [b"nothing", b"old old"])
async def test_an_edit_needs_a_piece_that_is_there_once(content: bytes) -> None:
    with pytest.raises(ToolError, match="exactly once"):
        await edit_file(calls(files=content), "s", "f", "old", "new")


async def test_a_large_file_is_not_edited() -> None:
    """The server would hold all of it."""
    with pytest.raises(ToolError, match="more than 1 MB"):
        await edit_file(calls(files=b"old" + bytes(1_000_000)), "s", "f", "old", "new")


async def test_an_error_has_its_code_its_reason_and_what_to_do() -> None:
    error = {"code": "SANDBOX_ELSEWHERE", "message": "Another node runs it.", "retry_after": 3}
    with pytest.raises(ToolError) as raised:
        await read_output(calls(commands__c__output=(503, error)), "s", "c")
    said = str(raised.value)
    assert said.startswith("SANDBOX_ELSEWHERE: Another node runs it. Try again in 3 s.")
    assert "same arguments" in said

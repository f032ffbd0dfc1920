"""How the MCP server reports what went wrong."""

import logging
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from mcp import Client, MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from sandyard.kit.http.inner_calls import InnerResponse
from sandyard.mcp.api import Calls
from sandyard.mcp.server import build_server


class RefusingApi:
    def __init__(self, status: int, code: str) -> None:
        self.status = status
        self.code = code
        self.queries: list[str] = []

    async def send(
        self, _method: str, _path: str, query: str, _headers: Mapping[str, str], _body: bytes
    ) -> InnerResponse:
        self.queries.append(query)
        error = {"code": self.code, "message": "It is not there."}
        return InnerResponse(self.status, [], orjson.dumps({"error": error}))


def client_of(api: RefusingApi) -> Client:
    return Client(build_server(lambda _context: Calls(api)))


@pytest.mark.parametrize("resource", ["log", "files/nope"])
@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(404, "SANDBOX_UNKNOWN", INVALID_PARAMS), (409, "NOT_RUNNING", INTERNAL_ERROR)],
)
async def test_a_resource_that_the_api_refuses_is_an_error_in_its_words_without_a_traceback(
    caplog: pytest.LogCaptureFixture, resource: str, status: int, code: str, expected: int
) -> None:
    async with client_of(RefusingApi(status, code)) as client:
        with pytest.raises(MCPError, match=f"{code}: It is not there.") as refused:
            await client.read_resource(f"sandyard://sandboxes/sbx-nope/{resource}")
    assert refused.value.code == expected
    assert [each for each in caplog.records if each.levelno > logging.INFO] == []


@pytest.mark.parametrize(
    ("named", "query"), [("a.txt", "path=a.txt"), ("/etc/hosts", "path=%2Fetc%2Fhosts")]
)
async def test_a_files_resource_has_the_path_of_the_tools(named: str, query: str) -> None:
    api = RefusingApi(404, "FILE_NOT_FOUND")
    async with client_of(api) as client:
        with pytest.raises(MCPError):
            await client.read_resource(f"sandyard://sandboxes/sbx-1/files/{named}")
    assert api.queries == [query]


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        (
            "run_command",
            {"sandbox_id": "s"},
            "INVALID_REQUEST: command: Field required. Correct the arguments and call again.",
        ),
        (
            "preview_look",
            {"project_id": "p", "path": "a"},
            "INVALID_REQUEST: path: must begin with /. Correct the arguments and call again.",
        ),
    ],
)
async def test_a_malformed_argument_is_named_with_what_to_do(
    tool: str, arguments: dict[str, Any], message: str
) -> None:
    async with client_of(RefusingApi(500, "INTERNAL_ERROR")) as client:
        found = await client.call_tool(tool, arguments)
    [content] = found.content
    assert found.is_error
    assert getattr(content, "text", "") == message

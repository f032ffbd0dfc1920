"""The MCP server: the tools and resources, each called with the API of its caller."""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import (
    ResourceError,
    ResourceNotFoundError,
    ToolError,
    UnexpectedToolError,
)
from mcp.server.mcpserver.resources import ResourceSecurity
from mcp_types import ToolAnnotations
from pydantic import ValidationError

from sandyard import __version__
from sandyard.kit.errors import InvalidError
from sandyard.kit.patterns import in_words
from sandyard.mcp import others, sandboxes
from sandyard.mcp.api import CallFailedError, Calls, segment

CallsOf = Callable[[Context[Any]], Calls]

_INSTRUCTIONS = """Sandyard runs sandboxes: Linux machines for commands and files.
Create one with a key of your choice and a time to live; work in /workspace; delete it when done.
Repeat a call that failed with the same key: nothing is made twice."""

_READS = frozenset(
    {
        *("list_sandboxes", "list_templates", "list_folder", "search_files"),
        *("read_file", "read_output", "preview_status", "preview_look"),
    }
)
_DESTROYS = frozenset(
    {"delete_sandbox", "kill_command", "write_file", "edit_file", "write_project_files"}
    | {"release_lease", "run_command", "start_command"}
)


_ANY_PATH = ResourceSecurity(reject_absolute_paths=False)
"""What a path may reach is decided by the API."""
_MOST_MISTAKES = 10
_LONGEST_FIELD = 100


class _Server(MCPServer[Any]):
    async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
        """Errors of arguments are in the API's words."""
        try:
            return await super().call_tool(*args, **kwargs)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError) and not isinstance(error, UnexpectedToolError):
                raise ToolError(_malformed(cause)) from cause
            raise


def build_server(calls_of: CallsOf) -> MCPServer[Any]:
    server = _Server(
        "sandyard", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING"
    )
    for tool in (*sandboxes.TOOLS, *others.TOOLS):
        name = tool.__name__
        hints = ToolAnnotations(
            read_only_hint=name in _READS,
            destructive_hint=name in _DESTROYS,
            idempotent_hint="key" in inspect.signature(tool).parameters,
        )
        server.tool(name, annotations=hints, structured_output=False)(_bound(tool, calls_of))

    @server.resource("sandyard://sandboxes/{sandbox_id}/log", mime_type="text/plain")
    async def program_log(sandbox_id: str, ctx: Context[Any]) -> str:
        """The last 1,000 lines that the sandbox's program has written."""
        path = f"platform/sandboxes/{segment(sandbox_id)}/logs"
        with _as_resource_errors():
            found = await calls_of(ctx).json("GET", path, query={"lines": 1000})
        return "\n".join(found["lines"])

    @server.resource("sandyard://sandboxes/{sandbox_id}/files/{+path}", security=_ANY_PATH)
    async def sandbox_file(sandbox_id: str, path: str, ctx: Context[Any]) -> str:
        """A text file of the sandbox, its first 30 kB."""
        with _as_resource_errors():
            found = await sandboxes.read_file(calls_of(ctx), sandbox_id, path)
        return str(found.get("text") or found.get("base64", ""))

    return server


@contextmanager
def _as_resource_errors() -> Iterator[None]:
    try:
        yield
    except ToolError as error:
        is_unknown = isinstance(error, CallFailedError) and error.status == 404
        kind = ResourceNotFoundError if is_unknown else ResourceError
        raise kind(str(error)) from error


def _malformed(error: ValidationError) -> str:
    mistakes = (
        f"{'.'.join(map(str, each['loc']))[:_LONGEST_FIELD]}: {in_words(each)}."
        for each in error.errors()[:_MOST_MISTAKES]
    )
    return f"{InvalidError.code}: {' '.join(mistakes)} Correct the arguments and call again."


def _bound(tool: Callable[..., Awaitable[Any]], calls_of: CallsOf) -> Callable[..., Awaitable[Any]]:
    """The tool without its first parameter, which is found by the context of the call."""

    async def call(ctx: Context[Any], **arguments: Any) -> Any:
        return await tool(calls_of(ctx), **arguments)

    signature = inspect.signature(tool, eval_str=True)
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=Context[Any])
    others = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for each in list(signature.parameters.values())[1:]
    ]
    call.__signature__ = signature.replace(parameters=[context, *others])  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in (context, *others)}
    call.__doc__, call.__name__ = tool.__doc__, tool.__name__
    return call

"""The MCP server: the tools and resources, each called with the API of its caller."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import ToolAnnotations

from sandyard import __version__
from sandyard.mcp import others, sandboxes
from sandyard.mcp.api import Calls, segment

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


def build_server(calls_of: CallsOf) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer(
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
        found = await calls_of(ctx).json("GET", path, query={"lines": 1000})
        return "\n".join(found["lines"])

    @server.resource("sandyard://sandboxes/{sandbox_id}/files/{+path}")
    async def sandbox_file(sandbox_id: str, path: str, ctx: Context[Any]) -> str:
        """A text file of the sandbox, its first 30 kB."""
        found = await sandboxes.read_file(calls_of(ctx), sandbox_id, f"/{path.lstrip('/')}")
        return str(found.get("text") or found.get("base64", ""))

    return server


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

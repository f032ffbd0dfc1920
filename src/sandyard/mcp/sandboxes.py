"""Tools: sandboxes, their commands, files, ports, and copies of them."""

import base64
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from sandyard.mcp.api import Calls, Query, segment

_MOST_EDITED_BYTES = 1_000_000
OUTPUT_BYTES = 30_000
"""What a tool returns of an output or a file; the rest by offset."""

SandboxId = Annotated[str, Field(description="From create_sandbox or list_sandboxes")]
CommandId = Annotated[str, Field(description="From start_command")]
Key = Annotated[
    str,
    Field(
        min_length=1,
        max_length=128,
        description="Any text that names this request. Repeat a call that failed or was not "
        "answered with the same key: it returns the same result and makes nothing twice.",
    ),
]
Minutes = Annotated[int, Field(ge=1, le=1440, description="It ends after this many minutes")]
Offset = Annotated[int, Field(ge=0, description="Where to go on: next_offset of the call before")]
FilePath = Annotated[str, Field(description="Absolute, or relative to /workspace")]
Command = Annotated[str, Field(description="A line for the shell")]
Folder = Annotated[str, Field(description="The working directory")]


async def create_sandbox(
    calls: Calls,
    key: Key,
    minutes: Minutes,
    template: Annotated[str, Field(description="A name or id from list_templates")] = "python",
    network: Annotated[
        Literal["none", "packages", "internet"] | None,
        Field(description="packages: package indexes and git hosts alone"),
    ] = None,
    *,
    keep_files: Annotated[bool, Field(description="When it ends, to start it again")] = False,
) -> dict[str, Any]:
    """Create and start a sandbox: a Linux machine for commands and files in /workspace, with
    its own processes, network rules and ports. It ends by itself after `minutes`."""
    once = _once(key)
    body = {
        "name": f"mcp-{once['Idempotency-Key'][:20]}",
        "template_id": await _template_id(calls, template),
        "max_running_seconds": minutes * 60,
        "recycle_on_timeout": not keep_files,
        "network": network,
    }
    made = await calls.json("POST", "platform/sandboxes", body=body, headers=once)
    path = f"platform/sandboxes/{made['sandbox_id']}"
    return _brief(await calls.json("POST", f"{path}/start"))


async def list_templates(calls: Calls) -> dict[str, Any]:
    """List the kinds of sandboxes that can be created."""
    found = await calls.json("GET", "platform/templates", query={"limit": 100})
    shown = ("template_id", "name", "description", "language")
    return {"templates": [{name: each[name] for name in shown} for each in found["templates"]]}


async def list_sandboxes(calls: Calls) -> dict[str, Any]:
    """List the account's sandboxes that run or can be started, the 100 newest."""
    found = await calls.json("GET", "platform/sandboxes", query={"limit": 100})
    known = [_brief(each) for each in found["sandboxes"] if each["status"] != "recycled"]
    return {"sandboxes": known}


async def extend_sandbox(calls: Calls, sandbox_id: SandboxId, minutes: Minutes) -> dict[str, Any]:
    """Let a running sandbox live for at least `minutes` from now on."""
    path = f"platform/sandboxes/{segment(sandbox_id)}/extend"
    return _brief(await calls.json("POST", path, body={"seconds": minutes * 60}))


async def delete_sandbox(calls: Calls, sandbox_id: SandboxId) -> str:
    """End a sandbox and delete its files. Do so when the work is done: running time is billed."""
    await calls.json("DELETE", f"platform/sandboxes/{segment(sandbox_id)}")
    return "deleted"


async def run_command(
    calls: Calls,
    sandbox_id: SandboxId,
    command: Command,
    timeout_sec: Annotated[float, Field(gt=0, le=600, description="Killed after this")] = 60,
    folder: Folder = "/workspace",
    user: Annotated[Literal["user", "root"], Field(description="root if available")] = "user",
) -> dict[str, Any]:
    """Run a command and wait for it: exit code and output. If the output is longer than 30 kB, its
    beginning; read the rest with read_output from next_offset on."""
    started = await _start(
        calls,
        sandbox_id,
        {"command": command, "folder": folder, "user": user, "timeout_sec": timeout_sec},
    )
    return _ended(started) | await read_output(calls, sandbox_id, started["command_id"])


async def start_command(
    calls: Calls, sandbox_id: SandboxId, command: Command, folder: Folder = "/workspace"
) -> dict[str, Any]:
    """Start a long command or a server in the background, and return its command_id at once. It
    ends with its sandbox at the latest."""
    body = {"command": command, "folder": folder, "background": True}
    return {"command_id": (await _start(calls, sandbox_id, body))["command_id"]}


async def read_output(
    calls: Calls, sandbox_id: SandboxId, command_id: CommandId, offset: Offset = 0
) -> dict[str, Any]:
    """Output of a command from an offset on, at most 30 kB of it, and whether it has ended."""
    path = f"platform/sandboxes/{segment(sandbox_id)}/commands/{segment(command_id)}"
    found = await calls.json("GET", f"{path}/output", query={"offset": offset})
    texts: dict[str, str] = {"stdout": "", "stderr": ""}
    left, position = OUTPUT_BYTES, offset
    for piece in found["output"]:
        data = piece["data"].encode()
        shown = data[:left].decode(errors="ignore")  # ends with a whole character
        texts[piece["stream"]] += shown
        left -= len(data)
        position = piece["offset"] - len(data) + len(shown.encode())
        if left <= 0:
            break
    is_whole = left > 0
    end = found["next_offset"] if is_whole else position
    lost = sum(piece["skipped"] for piece in found["output"])
    notes = {"skipped_bytes": lost} if lost else {}
    ended = _ended(await calls.json("GET", path)) if is_whole and found["is_complete"] else {}
    return {**texts, "next_offset": end, "is_complete": bool(ended), **ended, **notes}


async def kill_command(calls: Calls, sandbox_id: SandboxId, command_id: CommandId) -> str:
    """End a command with all processes of its group."""
    path = f"platform/sandboxes/{segment(sandbox_id)}/commands/{segment(command_id)}"
    await calls.json("DELETE", path)
    return "killed"


async def list_folder(
    calls: Calls,
    sandbox_id: SandboxId,
    path: FilePath = "/workspace",
    depth: Annotated[int, Field(ge=1, le=10)] = 1,
) -> dict[str, Any]:
    """Files and folders below a path, at most 500."""
    query: Query = {"path": path, "depth": depth, "limit": 500}
    found = await calls.json("GET", f"{_files(sandbox_id)}/list", query=query)
    names = [
        {"path": each["path"], "kind": each["kind"], "bytes": each["size_bytes"]}
        for each in found["files"]
    ]
    return {"files": names, "has_more": found["next_cursor"] is not None}


async def read_file(
    calls: Calls, sandbox_id: SandboxId, path: FilePath, offset: Offset = 0
) -> dict[str, Any]:
    """Read a file from an offset on, at most 30 kB of it; what is not text comes as base64."""
    status = await calls.json("GET", f"{_files(sandbox_id)}/stat", query={"path": path})
    size = int(status["size_bytes"])
    if offset >= size:
        return {"text": "", "next_offset": size, "size": size}
    span = {"range": f"bytes={offset}-{offset + OUTPUT_BYTES - 1}"}
    answer = await calls.send("GET", _files(sandbox_id), query={"path": path}, headers=span)
    data = answer.body[:OUTPUT_BYTES]
    content, used = _as_text(data)
    return {**content, "next_offset": offset + used, "size": size}


async def write_file(
    calls: Calls, sandbox_id: SandboxId, path: FilePath, text: str
) -> dict[str, Any]:
    """Write a text file, with the folders that it needs; an existing file is replaced."""
    return await _write(calls, sandbox_id, path, text.encode())


async def edit_file(
    calls: Calls,
    sandbox_id: SandboxId,
    path: FilePath,
    old: Annotated[str, Field(min_length=1, description="Text that the file has exactly once")],
    new: Annotated[str, Field(description="What takes its place")],
) -> dict[str, Any]:
    """Replace one piece of a text file of at most 1 MB."""
    span = {"range": f"bytes=0-{_MOST_EDITED_BYTES}"}
    answer = await calls.send("GET", _files(sandbox_id), query={"path": path}, headers=span)
    if len(answer.body) > _MOST_EDITED_BYTES:
        raise ToolError(f"{path} has more than 1 MB: change it with a command.")
    try:
        text = answer.body.decode()
    except UnicodeDecodeError:
        raise ToolError(f"{path} is not a text file: change it with a command.") from None
    if (count := text.count(old)) != 1:
        raise ToolError(
            f"{path} has `old` {count} times, not once: read the file and send a piece that is "
            "there exactly once."
        )
    return await _write(calls, sandbox_id, path, text.replace(old, new).encode())


async def search_files(
    calls: Calls,
    sandbox_id: SandboxId,
    pattern: Annotated[str, Field(min_length=1, description="An extended regular expression")],
    path: FilePath = "/workspace",
) -> dict[str, Any]:
    """Lines of files below a path that match a pattern, as path:line:text."""
    line = f"grep -rnIE -m 50 -e {shlex.quote(pattern)} -- {shlex.quote(path)} | cut -c -400"
    found = await run_command(calls, sandbox_id, line, timeout_sec=60)
    return {"matches": found["stdout"], "errors": found["stderr"], "is_whole": found["is_complete"]}


async def expose_port(
    calls: Calls,
    sandbox_id: SandboxId,
    port: Annotated[int, Field(ge=1, le=65535, description="What a program inside listens on")],
    minutes: Minutes = 60,
) -> dict[str, Any]:
    """A link by which a browser opens a port of the sandbox, for `minutes`."""
    path = f"platform/sandboxes/{segment(sandbox_id)}/tokens"
    made = await calls.json("POST", path, body={"port": port, "minutes": minutes})
    return {name: made[name] for name in ("url", "token", "expires_at")}


async def snapshot_sandbox(
    calls: Calls,
    sandbox_id: SandboxId,
    key: Key,
    name: Annotated[str | None, Field(description="A name for the new template")] = None,
) -> dict[str, Any]:
    """Store a running sandbox's files as a template for create_sandbox. It keeps running."""
    path = f"e2b/sandboxes/{segment(sandbox_id)}/snapshots"
    body = {"name": name} if name else {}
    made: dict[str, Any] = await calls.json("POST", path, body=body, headers=_once(key))
    return made


async def fork_sandbox(
    calls: Calls,
    sandbox_id: SandboxId,
    minutes: Minutes,
    key: Key,
    count: Annotated[int, Field(ge=1, le=10)] = 1,
) -> dict[str, Any]:
    """Start copies of a running sandbox, with its files as they are now."""
    path = f"e2b/sandboxes/{segment(sandbox_id)}/fork"
    body = {"count": count, "timeout": minutes * 60}
    made = await calls.json("POST", path, body=body, headers=_once(key))
    copies = [
        {"sandbox_id": each["sandbox"]["sandboxID"]} if "sandbox" in each else each for each in made
    ]
    return {"copies": copies}


TOOLS = (
    *(create_sandbox, list_sandboxes, list_templates, extend_sandbox, delete_sandbox),
    *(run_command, start_command, read_output, kill_command),
    *(list_folder, read_file, write_file, edit_file, search_files),
    *(expose_port, snapshot_sandbox, fork_sandbox),
)


def _files(sandbox_id: str) -> str:
    return f"platform/sandboxes/{segment(sandbox_id)}/files"


async def _write(calls: Calls, sandbox_id: str, path: str, content: bytes) -> dict[str, Any]:
    await calls.send("PUT", _files(sandbox_id), content, query={"path": path})
    return {"path": path, "bytes": len(content)}


async def _start(calls: Calls, sandbox_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
    path = f"platform/sandboxes/{segment(sandbox_id)}/commands"
    started: dict[str, Any] = await calls.json("POST", path, body=body)
    return started


def _ended(command: Mapping[str, Any]) -> dict[str, Any]:
    timed_out = (command.get("result") or {}).get("timed_out", False)
    return {"exit_code": command["exit_code"]} | ({"timed_out": True} if timed_out else {})


def _as_text(data: bytes) -> tuple[dict[str, str], int]:
    """As text up to the last whole character, or as base64; and how many bytes that is."""
    try:
        return {"text": data.decode()}, len(data)
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" and error.start > 0:
            return {"text": data[: error.start].decode()}, error.start
    return {"base64": base64.b64encode(data).decode()}, len(data)


def _brief(sandbox: Mapping[str, Any]) -> dict[str, Any]:
    names = (
        "sandbox_id",
        "name",
        "status",
        "status_reason",
        "timeout_at",
        "preview_url",
        "network",
    )
    return {name: sandbox[name] for name in names if sandbox.get(name) is not None}


async def _template_id(calls: Calls, wanted: str) -> str:
    found = await calls.json("GET", "platform/templates", query={"q": wanted, "limit": 100})
    known: Sequence[Mapping[str, Any]] = found["templates"]
    for each in known:
        if wanted in (each["name"], each["template_id"]):
            return str(each["template_id"])
    return wanted


def _once(key: str) -> Mapping[str, str]:
    """A header that has any text's digest as its key."""
    return {"Idempotency-Key": hashlib.sha256(key.encode()).hexdigest()}

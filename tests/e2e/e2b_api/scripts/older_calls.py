"""The calls that E2B's Python SDKs of 2025 have, at the hosts that they form themselves.

Run with E2B_API_KEY and E2B_DOMAIN set, and SSL_CERT_FILE if need be; names below `test` are
those of this machine. It ends with 0 if all is well.
"""

import asyncio
import inspect
import os
import socket
from typing import Any

import httpx
from e2b import (
    AsyncSandbox,
    CommandExitException,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxQuery,
)

MINE = f"b {os.getpid()}"
_resolve = socket.getaddrinfo


def _resolve_here(host: Any, *arguments: Any, **named: Any) -> Any:
    name = host.decode() if isinstance(host, bytes) else host
    return _resolve("127.0.0.1" if name.endswith(".test") else name, *arguments, **named)


def main() -> None:
    socket.getaddrinfo = _resolve_here
    make: Any = getattr(Sandbox, "create", Sandbox)
    sandbox = make(timeout=60, metadata={"a": MINE}, envs={"COLOUR": "red"})
    calls(sandbox)
    terminals(sandbox)
    control(sandbox)
    sandbox.kill()
    assert sandbox.is_running() is False
    asyncio.run(main_async())


def calls(sandbox: Any) -> None:
    assert sandbox.commands.run("echo $COLOUR; whoami").stdout == "red\nuser\n"
    try:
        code = sandbox.commands.run("exit 4").exit_code
    except CommandExitException as error:
        code = error.exit_code
    assert code == 4
    handle = sandbox.commands.run("cat", background=True, **_with_input(sandbox))
    sandbox.commands.send_stdin(handle.pid, "typed\n")
    assert any(each.pid == handle.pid for each in sandbox.commands.list())
    assert handle.kill() is True
    sandbox.files.write("folder/file", "text")
    assert sandbox.files.read("folder/file") == "text"
    assert [each.name for each in sandbox.files.list("folder")] == ["file"]
    assert sandbox.files.exists("nothing") is False
    watch = sandbox.files.watch_dir("folder")
    sandbox.files.write("folder/new", "1")
    seen: list[str] = []
    while "write" not in seen:
        seen += [each.type.value for each in watch.get_new_events()]
    watch.stop()
    try:
        sandbox.files.read("nothing")
    except NotFoundException:
        pass
    else:
        raise AssertionError("a missing file was read")
    link = sandbox.download_url("folder/file")
    assert httpx.get(link, timeout=60).text == "text"
    up = sandbox.upload_url("sent")
    assert httpx.post(up, files={"file": b"sent"}, timeout=60).status_code == 200
    assert sandbox.files.read("sent", format="bytes") == b"sent"


def terminals(sandbox: Any) -> None:
    shown: list[bytes] = []
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80))
    sandbox.pty.send_stdin(terminal.pid, b"echo $((40+2)); exit\n")
    terminal.wait(on_pty=shown.append)
    assert b"42" in b"".join(shown)


def control(sandbox: Any) -> None:
    sandbox.set_timeout(120)
    assert sandbox.is_running() is True
    assert sandbox.get_info().metadata == {"a": MINE}
    if not hasattr(Sandbox, "beta_pause"):
        return
    listed = Sandbox.list(query=SandboxQuery(metadata={"a": MINE})).next_items()
    assert [each.sandbox_id for each in listed] == [sandbox.sandbox_id]
    assert sandbox.get_metrics()[-1].mem_total == 1 << 30
    sandbox.beta_pause()
    assert sandbox.is_running() is False
    resumed = Sandbox.connect(sandbox.sandbox_id, timeout=60)
    assert resumed.files.read("folder/file") == "text"


async def main_async() -> None:
    sandbox: Any = await AsyncSandbox.create(timeout=60)
    runs = (sandbox.commands.run(f"echo {n}") for n in range(3))
    assert [each.stdout for each in await asyncio.gather(*runs)] == ["0\n", "1\n", "2\n"]
    await sandbox.files.write("file", "text")
    assert await sandbox.files.read("file") == "text"
    await sandbox.kill()


def _with_input(sandbox: Any) -> dict[str, bool]:
    """Before 2.0 every command could be typed to."""
    has_choice = "stdin" in inspect.signature(sandbox.commands._start).parameters
    return {"stdin": True} if has_choice else {}


if __name__ == "__main__":
    main()

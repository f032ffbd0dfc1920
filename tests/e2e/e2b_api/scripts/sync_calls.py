"""Every call of E2B's Python SDK, one after the other, without threads or tasks.

Run with E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL set; it ends with 0 if all is well. With
MACHINE_TOKEN set, only the calls to the machine at E2B_SANDBOX_URL, which needs no control API.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import httpx
from e2b import (
    AuthenticationException,
    CommandExitException,
    ConnectionConfig,
    FileNotFoundException,
    InvalidArgumentException,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
    Template,
    TimeoutException,
)
from packaging.version import Version


def main() -> None:
    if token := os.environ.get("MACHINE_TOKEN"):
        machine_calls(machine(token))
        return
    sandbox = Sandbox.create(timeout=120, metadata={"a": "b c/é"}, envs={"COLOUR": "red"})
    try:
        shown = sandbox.commands.run("echo $COLOUR $E2B_SANDBOX_ID").stdout
        assert shown == f"red {sandbox.sandbox_id}\n"
        machine_calls(sandbox)
        control(sandbox)
        pause_and_resume(sandbox)
    finally:
        assert sandbox.kill() is True
    gone(sandbox)
    templates()


def machine(token: str) -> Sandbox:
    return Sandbox(
        sandbox_id="this",
        sandbox_domain=None,
        envd_version=Version("0.6.4"),
        envd_access_token=token,
        traffic_access_token=None,
        connection_config=ConnectionConfig(extra_sandbox_headers={"X-Access-Token": token}),
    )


def machine_calls(sandbox: Sandbox) -> None:
    for check in (commands, input_and_signals, files, watches, terminals, links):
        check(sandbox)


def commands(sandbox: Sandbox) -> None:
    result = sandbox.commands.run("echo out; echo err >&2; echo $OWN", envs={"OWN": "x"})
    assert (result.stdout, result.stderr, result.exit_code) == ("out\nx\n", "err\n", 0)
    assert sandbox.commands.run("whoami; pwd; echo ~").stdout == "user\n/home/user\n/home/user\n"
    assert sandbox.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"  # noqa: S108 - inside
    pieces: list[str] = []
    big = sandbox.commands.run("seq 1 200000", on_stdout=pieces.append)
    assert big.stdout == "".join(pieces) == "".join(f"{n}\n" for n in range(1, 200001))
    with raises(CommandExitException) as failed:
        sandbox.commands.run("echo no >&2; exit 3")
    assert (failed.error.exit_code, failed.error.stderr) == (3, "no\n")
    with raises(InvalidArgumentException):
        sandbox.commands.run("true", cwd="/missing")
    with raises(AuthenticationException):
        sandbox.commands.run("true", user="nobody-knows")
    with raises(TimeoutException):
        sandbox.commands.run("sleep 30", timeout=0.5)
    until(lambda: "sleep 30" not in shown(sandbox))  # it was ended with its time
    wait = "until [ -e go ]; do sleep 0.02; done; echo late"
    handle = sandbox.commands.run(wait, background=True)
    handle.disconnect()
    again = sandbox.commands.connect(handle.pid)
    sandbox.files.write("go", "")
    assert again.wait().stdout == "late\n"
    with raises(NotFoundException):
        sandbox.commands.connect(handle.pid)


def input_and_signals(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("cat; echo end", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "one\n")
    sandbox.commands.stream_input(handle.pid, [b"two\n", b"three\n"])
    assert "cat; echo end" in shown(sandbox)
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "one\ntwo\nthree\nend\n"
    sleeping = sandbox.commands.run("sleep 100", background=True)
    assert sleeping.kill() is True
    told = None
    try:
        sleeping.wait()
    except CommandExitException as ended:
        told = (ended.exit_code, ended.error)
    assert told == (-1, "signal: killed")
    assert sandbox.commands.kill(99_999_999) is False


def files(sandbox: Sandbox) -> None:
    box = sandbox.files
    written = box.write("deep/er/file.txt", "héllo")
    assert (written.name, written.path) == ("file.txt", "/home/user/deep/er/file.txt")
    assert box.read("deep/er/file.txt") == "héllo"
    content = bytes(range(256)) * 8000
    box.write("/home/user/binary", content)
    assert bytes(box.read("binary", format="bytes")) == content
    assert b"".join(box.read("binary", format="stream")) == content
    several = box.write_files([{"path": "a", "data": "1"}, {"path": "b", "data": b"2"}])
    assert [each.path for each in several] == ["/home/user/a", "/home/user/b"]
    assert [each.name for each in box.list("deep", depth=2)] == ["er", "file.txt"]
    assert box.make_dir("made/here") is True
    assert box.make_dir("made/here") is False
    info = box.get_info("binary")
    assert (info.size, info.permissions, info.owner) == (len(content), "-rw-r--r--", "user")
    sandbox.commands.run("ln -s binary link; ln -s deep folder-link")
    assert box.get_info("link").symlink_target == "/home/user/binary"
    assert [each.path for each in box.list("folder-link")] == ["/home/user/folder-link/er"]
    assert box.rename("a", "elsewhere/a").path == "/home/user/elsewhere/a"
    assert box.exists("elsewhere/a") is True
    assert box.exists("a") is False
    box.remove("elsewhere")
    box.remove("elsewhere")
    for call in (box.read, box.list, box.get_info):
        with raises(FileNotFoundException):
            call("missing")
    for wrong in (lambda: box.read("made"), lambda: box.list("b"), lambda: box.make_dir("b")):
        with raises(InvalidArgumentException):
            wrong()
    with raises(AuthenticationException):
        box.read("b", user="nobody-knows")


def watches(sandbox: Sandbox) -> None:
    sandbox.files.make_dir("watched/below")
    watch = sandbox.files.watch_dir("watched", recursive=True)
    sandbox.files.write("watched/new", "1")
    sandbox.files.write("watched/new", "2")
    sandbox.commands.run("cd watched; echo 3 > below/own; mv new old; rm old")
    seen: list[tuple[str, str]] = []

    def is_all_seen() -> bool:
        seen.extend((each.name, each.type.value) for each in watch.get_new_events())
        return ("old", "remove") in seen

    until(is_all_seen)
    watch.stop()
    ours = [kind for name, kind in seen if name == "new"]
    assert ours == ["create", "chmod", "write", "write", "chmod", "rename"], seen
    assert ("below/own", "create") in seen
    with raises(NotFoundException):
        sandbox.files.watch_dir("missing")
    with raises(InvalidArgumentException):
        sandbox.files.watch_dir("b")


def terminals(sandbox: Sandbox) -> None:
    shown: list[bytes] = []
    terminal = sandbox.pty.create(PtySize(rows=30, cols=100), cwd="/tmp")  # noqa: S108 - inside
    sandbox.pty.send_stdin(terminal.pid, b"stty size; pwd; echo $((40+2))\n")
    sandbox.pty.resize(terminal.pid, PtySize(rows=40, cols=120))
    sandbox.pty.send_stdin(terminal.pid, b"stty size; exit\n")
    terminal.wait(on_pty=shown.append)
    text = b"".join(shown).decode()
    assert "/tmp" in text  # noqa: S108
    assert "42" in text
    assert "40 120" in text
    other = sandbox.pty.create(PtySize(rows=30, cols=100))
    assert sandbox.pty.kill(other.pid) is True


def links(sandbox: Sandbox) -> None:
    link = sandbox.download_url("b", use_signature_expiration=60)
    assert httpx.get(link, timeout=60).content == b"2"
    long = sandbox.download_url("binary")
    part = httpx.get(long, headers={"Range": "bytes=250-259"}, timeout=60)
    assert (part.status_code, part.content) == (206, bytes([*range(250, 256), *range(4)]))
    assert part.headers["Content-Range"] == f"bytes 250-259/{256 * 8000}"
    assert httpx.get(long, headers={"Range": "bytes=9999999-"}, timeout=60).status_code == 416
    assert httpx.get(link.replace("path=b", "path=binary"), timeout=60).status_code == 401
    assert httpx.post(link, files={"file": b"x"}, timeout=60).status_code == 401
    over = sandbox.download_url("b", use_signature_expiration=-5)
    assert httpx.get(over, timeout=60).status_code == 401
    plain = httpx.post(sandbox.upload_url("sent/plain"), files={"file": (None, "text")}, timeout=60)
    assert (plain.status_code, sandbox.files.read("sent/plain")) == (200, "text")
    up = sandbox.upload_url("sent/up")
    assert httpx.post(up, files={"file": b"sent"}, timeout=60).status_code == 200
    assert sandbox.files.read("sent/up") == "sent"


def control(sandbox: Sandbox) -> None:
    info = sandbox.get_info()
    assert (info.name, info.metadata, info.state) == (
        "base",
        {"a": "b c/é"},
        SandboxState.RUNNING,
    )
    sandbox.set_timeout(600)
    assert sandbox.get_info().end_at > info.end_at
    narrowed = Sandbox.list(query=SandboxQuery(metadata={"a": "b c/é"}))
    assert [each.sandbox_id for each in narrowed.next_items()] == [sandbox.sandbox_id]
    other = Sandbox.list(query=SandboxQuery(metadata={"a": "c"}))
    assert other.next_items() == []
    second = Sandbox.create(timeout=60)
    paged = Sandbox.list(limit=1)
    ids = [each.sandbox_id for each in paged.next_items()]
    assert paged.has_next
    ids += [each.sandbox_id for each in paged.next_items()]
    assert {sandbox.sandbox_id, second.sandbox_id} <= set(ids)
    assert Sandbox.kill(second.sandbox_id) is True
    assert sandbox.is_running() is True
    assert until(sandbox.get_metrics)[-1].mem_total == 1 << 30
    assert sandbox.get_host(3000).startswith(f"3000-{sandbox.sandbox_id}.")


def pause_and_resume(sandbox: Sandbox) -> None:
    """Files, metadata and variables are kept; processes are not."""
    sandbox.commands.run("sleep 1000", background=True)
    assert sandbox.pause() is True
    assert sandbox.pause() is False
    assert sandbox.is_running() is False
    paused = Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED])).next_items()
    assert [each.sandbox_id for each in paused] == [sandbox.sandbox_id]
    resumed = Sandbox.connect(sandbox.sandbox_id, timeout=100)
    assert resumed.files.read("b") == "2"
    assert resumed.get_info().metadata == {"a": "b c/é"}
    assert resumed.commands.run("echo $COLOUR").stdout == "red\n"
    assert "sleep 1000" not in shown(resumed)


def gone(sandbox: Sandbox) -> None:
    assert sandbox.kill() is False
    assert sandbox.is_running() is False
    with raises(SandboxNotFoundException):
        Sandbox.connect(sandbox.sandbox_id)
    with raises(TimeoutException):
        sandbox.commands.run("true")
    with raises(SandboxException):
        Sandbox.create("no-such-template")
    with raises(AuthenticationException):
        Sandbox.create(api_key="e2b_" + "0" * 40)
    short = Sandbox.create(timeout=1)
    until(lambda: not short.is_running())
    with raises(SandboxNotFoundException):
        Sandbox.get_info(short.sandbox_id)
    kept = Sandbox.create(timeout=1, lifecycle={"on_timeout": "pause"})
    until(lambda: not kept.is_running())
    assert Sandbox.get_info(kept.sandbox_id).state == SandboxState.PAUSED
    assert Sandbox.kill(kept.sandbox_id) is True


def templates() -> None:
    assert Template.exists("base") is True
    assert Template.exists("no-such-template") is False


def shown(sandbox: Sandbox) -> str:
    return str([each.args for each in sandbox.commands.list()])


def until(answers: Callable[[], Any], *, within_sec: float = 30) -> Any:
    """What it answers, once that is something."""
    deadline = time.monotonic() + within_sec
    while not (found := answers()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


class raises:  # noqa: N801 - as pytest's
    """pytest's, so that the script runs wherever an SDK is."""

    error: Any = None

    def __init__(self, kind: type[BaseException]) -> None:
        self._kind = kind

    def __enter__(self) -> "raises":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        assert error is not None, f"{self._kind.__name__} was not raised"
        self.error = error
        return isinstance(error, self._kind)


if __name__ == "__main__":
    main()
    # The SDK's HTTP library now and then aborts while Python ends; by then all is well.
    os._exit(0)

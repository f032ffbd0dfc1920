"""The calls of E2B's Python SDK that wait for others meanwhile.

Run with E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL set; it ends with 0 if all is well.
"""

import asyncio
import os

from e2b import (
    AsyncSandbox,
    CommandExitException,
    FileNotFoundException,
    FilesystemEvent,
    PtySize,
    SandboxNotFoundException,
    TimeoutException,
)


async def main() -> None:
    sandbox = await AsyncSandbox.create(timeout=120, metadata={"kind": "async"})
    try:
        await asyncio.gather(
            commands(sandbox), files(sandbox), watches(sandbox), terminals(sandbox), input_(sandbox)
        )
        await control(sandbox)
    finally:
        assert await sandbox.kill() is True
    assert await sandbox.is_running() is False


async def commands(sandbox: AsyncSandbox) -> None:
    lines = await asyncio.gather(*(sandbox.commands.run(f"sleep 0.1; echo {n}") for n in range(10)))
    assert [each.stdout for each in lines] == [f"{n}\n" for n in range(10)]
    try:
        code = (await sandbox.commands.run("exit 7")).exit_code
    except CommandExitException as error:
        code = error.exit_code
    assert code == 7
    pieces: list[str] = []
    handle = await sandbox.commands.run(
        "for n in 1 2 3; do echo $n; sleep 0.05; done", background=True, on_stdout=pieces.append
    )
    assert (await handle.wait()).stdout == "".join(pieces) == "1\n2\n3\n"


async def input_(sandbox: AsyncSandbox) -> None:
    handle = await sandbox.commands.run("cat", background=True, stdin=True)
    await sandbox.commands.send_stdin(handle.pid, "héllo")
    await sandbox.commands.close_stdin(handle.pid)
    assert (await handle.wait()).stdout == "héllo"


async def files(sandbox: AsyncSandbox) -> None:
    await asyncio.gather(*(sandbox.files.write(f"many/{n}", str(n)) for n in range(10)))
    found = await sandbox.files.list("many")
    assert {each.name for each in found} == {str(n) for n in range(10)}
    assert await sandbox.files.read("many/7") == "7"
    try:
        await sandbox.files.read("many/missing")
    except FileNotFoundException:
        return
    raise AssertionError("a missing file was read")


async def watches(sandbox: AsyncSandbox) -> None:
    await sandbox.files.make_dir("told")
    seen: asyncio.Queue[FilesystemEvent] = asyncio.Queue()
    handle = await sandbox.files.watch_dir("told", on_event=seen.put_nowait)
    await sandbox.files.write("told/file", "1")
    kinds = [(await asyncio.wait_for(seen.get(), 10)).type.value for _ in range(3)]
    assert kinds == ["create", "chmod", "write"]
    await handle.stop()  # type: ignore[no-untyped-call]


async def terminals(sandbox: AsyncSandbox) -> None:
    shown: list[bytes] = []
    terminal = await sandbox.pty.create(PtySize(rows=24, cols=80), on_data=shown.append)
    await sandbox.pty.send_stdin(terminal.pid, b"echo $((6*7)); exit\n")
    await terminal.wait()
    assert b"42" in b"".join(shown)


async def control(sandbox: AsyncSandbox) -> None:
    """A kill cuts what streams."""
    assert (await sandbox.get_info()).metadata == {"kind": "async"}
    other = await AsyncSandbox.create(timeout=60)
    streaming = await other.commands.run("sleep 100", background=True)
    await AsyncSandbox.kill(other.sandbox_id)
    try:
        await asyncio.wait_for(streaming.wait(), 20)
    except TimeoutException:
        pass
    else:
        raise AssertionError("the command outlived its sandbox")
    try:
        await AsyncSandbox.connect(other.sandbox_id)
    except SandboxNotFoundException:
        pass
    else:
        raise AssertionError("a killed sandbox was found")
    await sandbox.pause()
    resumed = await AsyncSandbox.connect(sandbox.sandbox_id)
    assert await resumed.files.read("many/3") == "3"


if __name__ == "__main__":
    asyncio.run(main())
    # The SDK's HTTP library now and then aborts while Python ends; by then all is well.
    os._exit(0)

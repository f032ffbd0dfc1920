"""Commands and shells by SSH."""

import asyncio
import fcntl
import os
import pty
import struct
import termios
from asyncio.subprocess import PIPE
from collections.abc import Callable
from contextlib import suppress

import pytest

from sandyard.runtime.sessions.ports import Processes
from tests.integration.sessions.ssh.clients import SshClient, opened_session

LONG_SEC = 60


async def test_a_command(ssh: SshClient) -> None:
    result = await ssh.run("echo out; echo err >&2; exit 7")

    assert (result.code, result.out, result.errors) == (7, b"out\n", "err\n")


async def test_input_and_output_are_passed_on_unchanged(ssh: SshClient) -> None:
    content = os.urandom(1 << 20)

    assert (await ssh.run("cat", typed=content)).out == content


async def test_a_script_from_the_input(ssh: SshClient) -> None:
    assert (await ssh.run("bash", typed=b"echo $((6 * 7))\n")).out == b"42\n"


async def test_variables_of_the_sandbox_and_the_locale(ssh: SshClient) -> None:
    await ssh.box.ask("PUT", "/env/COLOR", json={"value": "green"})

    result = await ssh.run("echo $COLOR $LC_TIME $EVIL", options=("-o", "SendEnv=LC_* EVIL"))

    assert result.out == b"green C.UTF-8\n"


async def test_a_shell_follows_the_size_of_its_terminal(ssh: SshClient) -> None:
    ours, theirs = pty.openpty()
    set_size(ours, rows=30, columns=90)
    process = await ssh.start(
        options=("-tt",), stdin=theirs, stdout=theirs, preexec_fn=own_terminal, stderr=PIPE
    )
    os.close(theirs)
    os.write(ours, b"trap 'echo resized to $(stty size)' WINCH; echo began at $(stty size)\n")
    await until_shown(ours, b"began at 30 90")

    set_size(ours, rows=40, columns=120)
    await until_shown(ours, b"resized to 40 120", again=b"\n")
    os.write(ours, b"exit 3\n")

    assert await asyncio.wait_for(process.wait(), LONG_SEC) == 3
    os.close(ours)


async def test_a_terminal_is_hung_up_with_its_connection(ssh: SshClient) -> None:
    ours, theirs = pty.openpty()
    process = await ssh.start("sleep 1000", options=("-tt",), stdin=theirs, stdout=PIPE)
    os.close(theirs)
    processes = (await opened_session(ssh)).processes
    await until_running(processes, lambda count: count == 1)

    process.kill()
    await process.wait()

    await until_running(processes, lambda count: count == 0)
    os.close(ours)


async def test_ten_sessions_at_once(ssh: SshClient) -> None:
    results = await asyncio.gather(*(ssh.run(f"echo {number}") for number in range(10)))

    assert [each.out for each in results] == [b"%d\n" % number for number in range(10)]


@pytest.mark.torture
async def test_a_hundred_sessions_at_once(ssh: SshClient) -> None:
    results = await asyncio.gather(*(ssh.run(f"sleep 5; echo {each}") for each in range(100)))

    assert [each.out for each in results] == [b"%d\n" % number for number in range(100)]


def set_size(terminal: int, *, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def own_terminal() -> None:
    """Its standard input is the terminal that controls it."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


async def until_shown(terminal: int, text: bytes, *, again: bytes = b"") -> None:
    """`again` is typed until then: a shell runs a trap when it has read a line."""
    os.set_blocking(terminal, False)
    shown = b""
    async with asyncio.timeout(LONG_SEC):
        while text not in shown:
            with suppress(BlockingIOError):
                shown += os.read(terminal, 65536)
            if again:
                os.write(terminal, again)
            await asyncio.sleep(0.05)


async def until_running(processes: Processes, is_enough: Callable[[int], bool]) -> None:
    async with asyncio.timeout(LONG_SEC):
        while not is_enough(sum(each.is_running for each in await processes.list())):
            await asyncio.sleep(0.05)

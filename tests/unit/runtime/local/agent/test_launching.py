"""A launched command has its limits; a failed launch says why."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from sandyard.runtime.guest import Paths, RefusedError
from sandyard.runtime.local.agent.processes import Starter, parse_failure
from sandyard.runtime.local.ipc.packets import Answer
from sandyard.runtime.local.jail.native_programs import start_program

RLIMITS = {"RLIMIT_CORE": 0, "RLIMIT_NOFILE": 123}


@pytest.fixture
def program(tmp_path: Path) -> str:
    content = start_program()
    assert content is not None
    return executable(tmp_path / "launch", content)


def executable(file: Path, content: bytes) -> str:
    file.write_bytes(content)
    file.chmod(0o111)
    return str(file)


def start(
    starter: Starter, *arguments: str, folder: str = "/", terminal: list[int] | None = None
) -> Answer:
    return starter.start(
        arguments=list(arguments),
        environment={"NAME": "value"},
        folder=folder,
        terminal=terminal,
        has_input=False,
        is_program=True,
    )


def child_pids() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def written(answer: Answer) -> str:
    """What the process wrote until its end."""
    os.waitpid(answer.result["pid"], 0)
    [descriptor] = answer.descriptors
    with os.fdopen(descriptor, "rb") as output:
        return output.read().decode()


@pytest.mark.parametrize("is_forked", [False, True])
def test_a_command_has_its_limits_folder_and_variables(
    program: str, tmp_path: Path, *, is_forked: bool
) -> None:
    starter = Starter(Paths("/workspace"), RLIMITS, {}, None if is_forked else program)
    script = "echo $0 $1 $NAME; pwd; ulimit -H -n; ulimit -c; nice"
    script += "; test $$ = $(cut -d' ' -f6 /proc/$$/stat) && echo leader"
    script += "; test -e /proc/$$/fd/3 || echo closed"
    answer = start(starter, "sh", "-c", script, "word", "two words", folder=str(tmp_path))
    lines = written(answer).split("\n")
    assert lines[:4] == ["word two words value", str(tmp_path), "123", "0"]
    assert lines[4] in ("5", str(min(19, os.nice(0) + 5))), "or from what the tests have"
    assert lines[5] == "leader"
    assert is_forked or lines[6] == "closed"


@pytest.mark.parametrize("is_forked", [False, True])
def test_a_command_that_can_not_be_run_is_refused_with_the_reason(
    program: str, tmp_path: Path, *, is_forked: bool
) -> None:
    starter = Starter(Paths("/workspace"), RLIMITS, {}, None if is_forked else program)
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    before, children = set(Path("/proc/self/fd").iterdir()), child_pids()
    with pytest.raises(RefusedError, match="/nowhere: No such file"):
        start(starter, "true", folder="/nowhere")
    with pytest.raises(RefusedError, match="text: Exec format error"):
        start(starter, str(tmp_path / "text"))
    assert set(Path("/proc/self/fd").iterdir()) == before
    assert not starter.running
    for pid in child_pids() - children:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 127


def test_a_command_with_a_terminal_controls_it(program: str) -> None:
    starter = Starter(Paths("/workspace"), RLIMITS, {}, program)
    answer = start(starter, "sh", "-c", "tty; stty size < /dev/tty", terminal=[90, 33])
    [terminal] = answer.descriptors
    shown = b""
    with suppress(OSError):  # the end of a terminal whose last process has exited
        while piece := os.read(terminal, 4096):
            shown += piece
    os.close(terminal)
    os.waitpid(answer.result["pid"], 0)
    device, size = shown.decode().split("\r\n", 1)
    assert device.startswith("/dev/pts/")
    assert size == "33 90\r\n"


def test_a_launch_that_takes_too_long_is_aborted(tmp_path: Path) -> None:
    """As by a process of the machine that stops it."""
    held_up = executable(tmp_path / "held-up", b"#!/bin/sh\nexec sleep 600\n")
    Path(held_up).chmod(0o755)
    starter = Starter(Paths("/workspace"), RLIMITS, {}, held_up, launch_ms=100)
    before = child_pids()
    with pytest.raises(RefusedError, match=os.strerror(errno.ETIMEDOUT)):
        start(starter, "true")
    [pid] = child_pids() - before
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9


@pytest.mark.parametrize("report", [b"x", bytes(15), b"\xff" * 16, b"\x7f" * 16])
def test_any_report_of_a_failure_has_a_valid_error_number(report: bytes) -> None:
    _, number = parse_failure(report)
    assert 0 <= number <= 4095
    os.strerror(number)

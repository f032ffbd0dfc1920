"""Commands are spawned as their user, with their limits, and use their processors alone."""

import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from sandyard.runtime.local.jail.isolation import WrappedCommand
from sandyard.runtime.local.jail.spawn import kill_tree, pin, run, spawn

_UID = 1_900_000_001 if os.geteuid() == 0 else None
_PATH = {"PATH": "/usr/bin:/bin"}


def shell(script: str, *, uid: int | None = _UID, folder: Path | None = None) -> WrappedCommand:
    return WrappedCommand(uid, ["/bin/sh", "-c", script], dict(_PATH), folder)


@pytest.mark.parametrize("is_forked", [False, True])
async def test_a_command_has_its_user_and_what_it_is_given(
    tmp_path: Path, *, is_forked: bool
) -> None:
    """With a folder it is forked, as where no instructions are known."""
    wrapped = shell("", folder=Path("/") if is_forked else None)
    given = wrapped.add_content(b"given")
    wrapped.command[-1] = (
        f"id -u; id -G; cat /proc/self/fd/{given}; echo; ls /proc/$$/fd | wc -l; echo x >&2"
    )
    with (tmp_path / "said").open("wb") as said:
        outcome = await run(wrapped, timeout_sec=20, stdout=said.fileno())
    assert (outcome.code, outcome.stderr) == (0, "x")
    uid = str(os.geteuid() if _UID is None else _UID)
    told = (tmp_path / "said").read_text().split()
    assert told[0] == uid
    assert told[-2] == "given"
    assert int(told[-1]) <= 5, "its own, and what the shell takes to count them"
    if _UID is not None:
        assert told[1] == uid, "and no other group"


@pytest.mark.parametrize("folder", [None, Path("/")])
async def test_a_command_has_its_limits(folder: Path | None) -> None:
    limits = {resource.RLIMIT_NOFILE: 77, resource.RLIMIT_CORE: 0}
    reader, writer = os.pipe()
    process = await spawn(
        shell("ulimit -n; ulimit -H -n; ulimit -c", folder=folder), stdout=writer, limits=limits
    )
    os.close(writer)
    assert await process.wait() == 0
    assert os.read(reader, 100).split() == [b"77", b"77", b"0"]
    os.close(reader)


async def test_what_can_not_be_run_ends_with_127() -> None:
    wrapped = WrappedCommand(None, ["/nowhere"], {})
    assert (await run(wrapped, timeout_sec=20)).code == 127


async def test_what_takes_too_long_is_ended_with_all_below_it() -> None:
    with pytest.raises(TimeoutError):
        await run(shell("sleep 61 & sleep 60"), timeout_sec=0.2)
    process = await spawn(shell("sleep 60"))
    await kill_tree(process)
    # The shell may have seen its command's end before its own.
    assert process.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    assert await process.wait() == process.returncode


@pytest.mark.parametrize(
    ("cpu", "cores"), [(0.5, 1), (1, 1), (1.01, 1), (1.99, 1), (2, 2), (2.5, 2)]
)
def test_nobody_gets_more_processors_than_asked_for(cpu: float, cores: int) -> None:
    usable = os.sched_getaffinity(0)
    with subprocess.Popen(["sleep", "60"]) as process:
        pin([process.pid, 2**22 + 1], cpu)
        assert len(os.sched_getaffinity(process.pid)) == min(cores, len(usable))
        process.kill()
    assert os.sched_getaffinity(0) == usable

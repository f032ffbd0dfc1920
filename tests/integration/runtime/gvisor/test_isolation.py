"""What a machine with its own kernel sees and reaches of the host, in short: the attacks of
`tests/integration/runtime/attacks` run in such machines too."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.kit.clock import SystemClock
from sandyard.runtime.local.server.machines import LocalMachines
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import MachineSpec
from sandyard.runtime.sessions.ports import Session
from tests.integration.runtime.gvisor.test_memory import LIMITS, ended, run_id
from tests.support.runtime.sessions import shell

# Started by root through the API too: it has no right that reaches out of its kernel.
_ESCAPES = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER, PTRACE_ATTACH = 0x10000000, 16
print(libc.mount(b"none", b"/mnt", b"tmpfs", 0, None) != 0)
print(libc.ptrace(PTRACE_ATTACH, 1, None, None) != 0)
for path in ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/dev/mem", "/dev/kmsg"):
    try:
        open(path, "w").write("x")
        print(False)
    except OSError:
        print(True)
"""


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    machines = LocalMachines(tmp_path / "runtime", LocalOptions(), SystemClock())
    await machines.create(run_id(1), MachineSpec(LIMITS, 600, isolation="gvisor"))
    yield await machines.session(run_id(1))
    await machines.stop(run_id(1))
    await ended(machines, run_id(1))


async def test_it_sees_and_reaches_nothing_of_the_host(session: Session, tmp_path: Path) -> None:
    """One machine for all: its start takes about a second."""
    (tmp_path / "secret").write_text("x")
    hidden = [str(tmp_path), "/root/.ssh", "/etc/shadow", "/boot", "/home/root"]
    found = f"import os; print([each for each in {hidden!r} if os.path.exists(each)])"
    assert await shell(session, f'python3 -c "{found}"') == b"[]\n"
    others = "ls /proc | grep -c '^[0-9]'"
    assert int(await shell(session, others)) < 10
    said = await shell(session, f"python3 -c '{_ESCAPES.replace(chr(39), chr(34))}'")
    assert set(said.split()) == {b"True"}
    assert str(os.getpid()).encode() not in await shell(session, "cat /proc/*/stat | cut -d' ' -f1")
    sockets = "find / -xdev -type s -not -path '/proc/*' 2>/dev/null; true"
    assert b"control" not in await shell(session, sockets)
    processors = "taskset -p -c 0-63 $$ >/dev/null 2>&1; nproc"
    assert int(await shell(session, processors)) == 1

"""A sandbox's own root: it may change its system, and nothing that is not its sandbox's."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.kit.errors import UnavailableError
from sandyard.runtime.errors import CommandRefusedError
from sandyard.runtime.local.agent.agent import NAME
from sandyard.runtime.local.host.processes import descendants
from sandyard.runtime.local.jail.user_namespaces import make_user_namespaces
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.local.storage.volumes import image_bytes
from sandyard.runtime.model import Program
from sandyard.runtime.sessions.model import Command, Output, Process
from sandyard.runtime.sessions.ports import Session
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, OBEDIENT, new_run_id, started

_MEGABYTE = 1 << 20
_FORKED = """
import os, time
children = 0
for uid in (1, 2, 3, 4):
    if os.fork() == 0:
        os.setresuid(uid, uid, uid)
        made = 0
        try:
            for _ in range(40):
                if os.fork() == 0:
                    time.sleep(60)
                made += 1
        except OSError:
            pass
        os.write(1, f"{made}\\n".encode())
        time.sleep(60)
time.sleep(3)
"""


async def said(session: Session, script: str) -> tuple[int | None, str]:
    """What a script said, with its exit code."""
    told, code = b"", None
    async for each in session.processes.run(
        Command(("/bin/bash", "-l", "-c", f"( {script} ) 2>&1"))
    ):
        match each:
            case Output(data=data):
                told += data
            case Process(exit_code=ended):
                code = ended
    return code, told.decode().strip()


def root_of(session: Session) -> Session:
    as_root = session.as_root()
    assert as_root is not None
    return as_root


async def test_who_kills_everybody_leaves_the_machine(runtime: LocalRuntime) -> None:
    """Both users; and those whose parents are gone are no zombies."""
    async with started(runtime, Program(None)) as running:
        user = await runtime.session(running.run_id)
        for session in (user, root_of(user)):
            for signal_name in ("KILL", "TERM"):
                await said(session, f"kill -{signal_name} -1; kill -{signal_name} 1")
        assert await said(user, "id -un") == (0, "user")
        orphans = "for n in 1 2 3; do (setsid sleep 0.01 &); done; sleep 0.5"
        counted = "grep -l '^State:.Z' /proc/[0-9]*/status | wc -l"
        assert await said(user, f"{orphans}; {counted}") == (0, "0")


async def test_root_changes_the_system_and_its_user_does_not(runtime: LocalRuntime) -> None:
    async with started(runtime) as running:
        user = await runtime.session(running.run_id)
        assert await said(user, "id -un") == (0, "user")
        assert (await said(user, "touch /etc/mine"))[0] == 1
        assert await said(user, "sudo id -un") == (0, "root")
        script = (
            "sudo sh -c 'echo echo hello > /usr/local/bin/greet; chmod +x /usr/local/bin/greet'"
        )
        assert await said(user, f"{script}; greet") == (0, "hello")
        assert not Path("/usr/local/bin/greet").exists()
        script = "echo $(id -un) $HOME"
        as_root = await user.processes.start(Command(("sh", "-c", script), user="root"))
        assert (await user.processes.wait(as_root.id)).exit_code == 0
        told = [each.data async for each in user.processes.output(as_root.id)]
        assert told == [b"root /root\n"]
        with pytest.raises(CommandRefusedError, match="`user` or `root`"):
            await user.processes.start(Command(("id",), user="daemon"))
        root = root_of(user)
        assert await said(root, "id -un; echo $((1 + 1)) > /etc/sum") == (0, "root")
        info = await user.files.stat("/etc/sum")
        assert (info.uid, info.gid) == (0, 0)
        async with started(runtime) as another:
            other = await runtime.session(another.run_id)
            assert (await said(other, "cat /etc/sum; greet"))[0] == 127


async def test_sudo_takes_the_usual_options(runtime: LocalRuntime) -> None:
    async with started(runtime) as running:
        user = await runtime.session(running.run_id)
        assert await said(user, "sudo -n -E A=b sh -c 'echo $A $HOME'") == (0, "b /root")
        assert await said(user, "sudo -u nobody id -u") == (0, "65534")
        assert await said(user, "sudo -i pwd") == (0, "/root")
        assert await said(user, "sudo -- sh -c 'exit 7'") == (7, "")
        assert (await said(user, "sudo -u unknown true"))[0] == 1


async def test_root_adds_users_who_have_a_home_and_a_password(runtime: LocalRuntime) -> None:
    async with started(runtime, Program(None)) as running:
        user = await runtime.session(running.run_id)
        add = "sudo adduser --disabled-password --gecos 'Bob B,,,' bob"
        code, output = await said(user, f"{add} 2>&1")
        assert code == 0, output
        assert await said(user, "sudo -u bob sh -c 'cd && id -un && pwd'") == (0, "bob\n/home/bob")
        assert (await said(user, "sudo useradd -m eve"))[0] == 0
        assert await said(user, "sudo -u eve id -gn") == (0, "eve")
        assert (await said(user, "echo bob:secret | sudo chpasswd"))[0] == 0
        assert await said(user, "sudo su bob -c 'id -un'") == (0, "bob")
        assert (await said(user, "sudo deluser bob"))[0] == 0


async def test_root_is_nobody_outside_its_sandbox(runtime: LocalRuntime) -> None:
    async with started(runtime) as running:
        root = root_of(await runtime.session(running.run_id))
        for refused in (
            "mount -t tmpfs none /mnt",
            "unshare -U true",
            "mknod /root/disk b 7 0",
            "ip link add x type dummy",
            "sh -c 'echo 1 > /proc/sys/kernel/panic'",
            "chown 70000 /etc/hosts",
        ):
            assert (await said(root, refused))[0] != 0, refused
        inside = runtime.folder_of(running.run_id)
        supervisor = inside.supervisor_pid()
        assert supervisor is not None
        _, told = await said(root, "sleep 60 & cat /proc/$!/uid_map")
        assert told.split()[:3] == ["0", "0", "1000"]
        owners = {Path(f"/proc/{pid}").stat().st_uid for pid in descendants(supervisor)}
        assert any(uid >= 2_000_000_000 for uid in owners)


async def test_what_root_writes_is_within_the_limit(runtime: LocalRuntime) -> None:
    limits = replace(LIMITS, storage_bytes=20 * _MEGABYTE)
    async with started(runtime, limits=limits) as running:
        root = root_of(await runtime.session(running.run_id))
        script = "for n in a b; do head -c 15M /dev/zero > /opt/$n; done"
        code, told = await said(root, script)
        assert code == 1
        assert "No space left" in told
        assert (await runtime.sample(running.run_id)).storage_bytes <= image_bytes(
            limits.storage_bytes
        )


async def test_all_users_together_have_so_many_processes(runtime: LocalRuntime) -> None:
    async with started(runtime) as running:
        root = root_of(await runtime.session(running.run_id))
        await root.files.write("/root/fork.py", _pieces(_FORKED.encode()))
        _, told = await said(root, "timeout -s KILL 20 python3 /root/fork.py")
        made = [int(line) for line in told.split() if line.isdigit()]
        assert made
        assert sum(made) <= LIMITS.processes + 16


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def test_what_root_changed_is_there_after_a_restart(runtime: LocalRuntime) -> None:
    run_id = new_run_id()
    await runtime.start(run_id, OBEDIENT, LIMITS)
    user = await runtime.session(run_id)
    script = (
        "echo kept > /etc/kept; chown 33:33 /etc/kept; rm /usr/bin/env; mkdir -p /opt/mine/work"
    )
    assert await said(root_of(user), script) == (0, "")
    assert await said(user, "echo own > own; sudo touch of-root") == (0, "")
    ended = await runtime.stop(run_id)
    assert ended.snapshot is not None, ended.snapshot_error
    async with started(runtime, replace(OBEDIENT, snapshot_id=ended.snapshot.id)) as restored:
        again = await runtime.session(restored.run_id)
        script = "cat /etc/kept own; stat -c %u:%g /etc/kept own of-root; ls -A | sort | xargs"
        _, told = await said(again, script)
        assert told.split()[:5] == ["kept", "own", "33:33", "1000:1000", "0:0"]
        assert ".sandyard-system" not in told
        assert (await said(again, "ls /usr/bin/env"))[0] == 2
        assert (await said(again, "ls -d /opt/mine/work"))[0] == 0


async def test_a_lost_agent_of_root_ends_no_command_of_the_user(runtime: LocalRuntime) -> None:
    async with started(runtime) as running:
        user = await runtime.session(running.run_id)
        sleeping = await user.processes.start(Command(("/bin/sleep", "60")))
        assert await said(root_of(user), "true") == (0, "")
        supervisor = runtime.folder_of(running.run_id).supervisor_pid()
        assert supervisor is not None
        for pid in _agents_of_root(supervisor):
            os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(20):
            while (await said_again(root_of(user))) != (0, "back"):
                await asyncio.sleep(0.05)
        assert (await user.processes.get(sleeping.id)).is_running


async def said_again(session: Session) -> tuple[int | None, str]:
    try:
        return await said(session, "echo back")
    except UnavailableError:  # the one that was asked is gone
        return (None, "")


def _agents_of_root(supervisor: int) -> list[int]:
    return [
        pid
        for pid in descendants(supervisor)
        if Path(f"/proc/{pid}/cmdline").read_text().startswith(NAME)
        and "2000" in Path(f"/proc/{pid}/status").read_text().split("Uid:")[1].split()[0][:4]
    ]


async def test_several_threads_make_user_namespaces() -> None:
    """As a server does that is asked for several sandboxes at once when it begins."""
    uid = LocalOptions().uids[-1]
    makers = (asyncio.to_thread(make_user_namespaces, uid, processes=4096) for _ in range(60))
    async with asyncio.timeout(60):
        for made in await asyncio.gather(*makers):
            made.close()

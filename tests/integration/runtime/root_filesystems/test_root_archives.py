"""Archives of a running sandbox with a root: others begin with its whole system."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.kit.errors import SandyardError
from sandyard.runtime.sessions.model import Command
from tests.integration.runtime.root_filesystems.test_root import root_of, said
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, OBEDIENT, new_run_id, started
from tests.support.runtime.sessions import pieces

_CHANGES = """
set -e
echo 'echo hello' > /usr/local/bin/greet; chmod +x /usr/local/bin/greet
mkdir -p /opt/app; echo 1 > /opt/app/version; chown 1000:1000 /opt/app/version
rm /etc/hosts; rm -r /usr/share/perl5; mkdir /usr/share/perl5; echo own > /usr/share/perl5/file
echo secret > /root/secret; chmod 600 /root/secret
echo mine > /home/user/mine
"""
_SEEN = """
greet; stat -c %u:%g /opt/app/version; cat /opt/app/version; ls /etc/hosts
ls /usr/share/perl5; stat -c %u:%a /root/secret; cat /home/user/mine; ls -a /home/user
"""
_EXPECTED = """hello
1000:1000
1
ls: cannot access '/etc/hosts': No such file or directory
file
0:600
mine"""


async def test_another_begins_with_the_system_as_it_was(runtime: LocalRuntime) -> None:
    async with started(runtime) as running:
        user = await runtime.session(running.run_id)
        code, told = await said(root_of(user), _CHANGES)
        assert code == 0, told
        await runtime.save_archive(running.run_id, "one")
        assert ".sandyard-system" not in (await said(user, "ls -a /home/user"))[1]
        await said(root_of(user), "rm /usr/local/bin/greet")
        other = new_run_id()
        program = replace(OBEDIENT, archive_id="one")
        await runtime.start(other, program, LIMITS)
        try:
            _, seen = await said(root_of(await runtime.session(other)), _SEEN)
            assert seen.startswith(_EXPECTED), seen
            assert ".sandyard-system" not in seen
            await runtime.save_archive(other, "two")
        finally:
            await runtime.stop(other)
        again = new_run_id()
        await runtime.start(again, replace(OBEDIENT, archive_id="two"), LIMITS)
        _, seen = await said(root_of(await runtime.session(again)), _SEEN)
        await runtime.stop(again)
        assert seen.startswith(_EXPECTED), seen


async def test_each_start_has_an_id_of_its_own(runtime: LocalRuntime) -> None:
    """As the boot of a machine has: by it programs tell that all was started anew."""
    read = "cat /proc/sys/kernel/random/boot_id"
    ids = []
    for _ in range(2):
        async with started(runtime) as running:
            session = await runtime.session(running.run_id)
            first, second = [await said(session, read) for _ in range(2)]
            assert first == second
            ids.append(first[1])
    assert len(set(ids)) == 2
    assert all(len(each) == 36 for each in ids)


async def test_root_writes_for_the_user(runtime: LocalRuntime) -> None:
    async with started(runtime) as running:
        user = await runtime.session(running.run_id)
        as_root = user.as_root(for_user=True)
        assert as_root is not None
        assert await as_root.files.make_folder("/srv/a/b")
        assert (await said(user, "touch /srv/a/b/mine; stat -c %U /srv/a /srv"))[1] == "user\nroot"


_PACKED = """
set -e
mkdir -p /tmp/p/DEBIAN /tmp/p/opt/own; echo packed > /tmp/p/opt/own/file
printf '%s\\n' 'Package: own' 'Version: 1' 'Architecture: all' 'Maintainer: a <a@b.test>' \
    'Description: d' > /tmp/p/DEBIAN/control
dpkg-deb --build /tmp/p /tmp/own.deb >/dev/null
dpkg -i /tmp/own.deb >/dev/null; cat /opt/own/file; dpkg-query -W own
useradd -r own-user; chown own-user /opt/own/file; stat -c %U /opt/own/file
"""


async def test_a_package_is_installed(runtime: LocalRuntime) -> None:
    """dpkg wants to know whom the files of packages belong to that are there."""
    async with started(runtime) as running:
        told = await said(root_of(await runtime.session(running.run_id)), _PACKED)
        assert told == (0, "packed\nown\t1\nown-user")


async def test_an_archive_of_files_alone_is_the_user_s(runtime: LocalRuntime) -> None:
    """As versions before kept them."""
    async with started(runtime) as running:
        session = await runtime.session(running.run_id)
        await session.files.write("kept", pieces(b"1"))
        await runtime.archives.write("old", session.files.read_tar("/workspace"))
        other = new_run_id()
        await runtime.start(other, replace(OBEDIENT, archive_id="old"), LIMITS)
        told = await said(await runtime.session(other), "stat -c %U kept; cat kept")
        await runtime.stop(other)
        assert told == (0, "user\n1")


async def test_a_stop_while_it_is_packed_keeps_all_and_leaves_nothing(
    runtime: LocalRuntime, tmp_path: Path
) -> None:
    run_id = new_run_id()
    await runtime.start(run_id, OBEDIENT, LIMITS)
    user = await runtime.session(run_id)
    await said(root_of(user), "head -c 100M /dev/urandom > /opt/large; echo kept > /etc/kept")
    saving = asyncio.ensure_future(runtime.save_archive(run_id, "one"))
    while not list(tmp_path.rglob("one.new")):
        await asyncio.sleep(0.01)
    ended = await runtime.stop(run_id)
    with pytest.raises(SandyardError):
        await saving
    assert not list(tmp_path.rglob("one.*"))
    assert ended.snapshot is not None
    again = new_run_id()
    await runtime.start(again, replace(OBEDIENT, snapshot_id=ended.snapshot.id), LIMITS)
    assert await said(await runtime.session(again), "cat /etc/kept; ls -A | grep -c system") == (
        1,
        "kept\n0",
    )
    await runtime.stop(again)


_RENAMED = """
touch running
while [ -e running ]; do
    mv .sandyard-system moved 2>/dev/null; rmdir moved .sandyard-system 2>/dev/null
done
"""


async def test_no_rename_inside_loses_what_root_has_changed(runtime: LocalRuntime) -> None:
    """The system is packed with the workspace, whose names are the user's to change."""
    async with started(runtime) as running:
        user = await runtime.session(running.run_id)
        script = "head -c 30M /dev/urandom > large; sudo sh -c 'echo kept > /etc/kept'"
        assert await said(user, script) == (0, "")
        await user.processes.start(Command(("sh", "-c", _RENAMED)))
        for number in range(3):
            await runtime.save_archive(running.run_id, f"live-{number}")
        for number in range(3):
            other = new_run_id()
            await runtime.start(other, replace(OBEDIENT, archive_id=f"live-{number}"), LIMITS)
            told = await said(await runtime.session(other), "cat /etc/kept; ls -d moved 2>&-")
            await runtime.stop(other)
            assert told == (2, "kept")

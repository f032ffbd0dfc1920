"""Attacks by a sandbox's root, and by who leaves a snapshot for one."""

import asyncio
import gzip
import io
import tarfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.runtime.errors import StartFailedError
from sandyard.runtime.local.server.options import LocalOptions
from tests.integration.runtime.root_filesystems.test_root import root_of, said
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, OBEDIENT, new_run_id, started

_LOOKUP = """
mkfifo /usr/lib/libnss_hostile.so.2 /usr/lib/x86_64-linux-gnu/libnss_hostile.so.2
echo 'passwd: hostile' > /etc/nsswitch.conf; echo 'group: hostile' >> /etc/nsswitch.conf
"""


def links(**targets: Path) -> bytes:
    """The archive of a workspace in which somebody made links in the places of system folders."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, target in targets.items():
            link = tarfile.TarInfo(f"./.sandyard-system/root/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, str(target)
            archive.addfile(link)
    return gzip.compress(packed.getvalue())


@pytest.mark.parametrize("places", [("upper", "work"), ("upper/run",), ("upper/tmp",)])
async def test_a_link_in_a_snapshot_does_not_lead_out(
    places: tuple[str, ...], runtime: LocalRuntime, tmp_path: Path
) -> None:
    """Else the host's folders would be its system, or be mounted over."""
    folders = {place: tmp_path / Path(place).name for place in places}
    for folder in folders.values():
        folder.mkdir(mode=0o777)
    snapshots = tmp_path / "runtime/snapshots"
    snapshots.mkdir(parents=True)
    (snapshots / "hostile.snapshot").write_bytes(links(**folders))
    with pytest.raises(StartFailedError, match="link"):
        await runtime.start(new_run_id(), replace(OBEDIENT, snapshot_id="hostile"), LIMITS)
    assert not [entry for folder in folders.values() for entry in folder.iterdir()]


async def test_a_user_alone_leaves_no_system_behind(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path / "runtime", LocalOptions(root="none"))
    run_id = new_run_id()
    await runtime.start(run_id, OBEDIENT, LIMITS)
    user = await runtime.session(run_id)
    assert user.as_root() is None
    script = "mkdir -p .sandyard-system/root/upper/etc; echo x > .sandyard-system/root/upper/etc/x"
    assert await said(user, script) == (0, "")
    ended = await runtime.stop(run_id)
    assert ended.snapshot is not None, ended.snapshot_error
    await runtime.forget(run_id)
    runtime = LocalRuntime(tmp_path / "runtime")
    async with started(runtime, replace(OBEDIENT, snapshot_id=ended.snapshot.id)) as restored:
        again = await runtime.session(restored.run_id)
        assert "No such file" in (await said(again, "cat /etc/x"))[1]
        assert await said(root_of(again), "touch /etc/y") == (0, "")


@pytest.mark.parametrize(
    "left", ["ln -s ../usr .sandyard-system", "touch .sandyard-system", "mkdir .sandyard-system"]
)
async def test_what_has_the_name_of_the_system_is_not_packed_for_it(
    left: str, runtime: LocalRuntime
) -> None:
    run_id = new_run_id()
    await runtime.start(run_id, OBEDIENT, LIMITS)
    user = await runtime.session(run_id)
    assert await said(user, f"{left}; sudo touch /etc/kept") == (0, "")
    ended = await runtime.stop(run_id)
    assert ended.snapshot is not None, ended.snapshot_error
    async with started(runtime, replace(OBEDIENT, snapshot_id=ended.snapshot.id)) as restored:
        again = await runtime.session(restored.run_id)
        assert await said(again, "ls /etc/kept; ls -d .sandyard-system 2>&-") == (2, "/etc/kept")


async def test_the_agents_load_nothing_of_the_machine(runtime: LocalRuntime) -> None:
    """They look no user up: the C library would load a library of the machine's for that, which
    here never opens."""
    async with started(runtime) as running:
        user = await runtime.session(running.run_id)
        root = root_of(user)
        assert await said(root, _LOOKUP) == (0, "")
        for session in (user, root):
            async with asyncio.timeout(20):
                packed = b"".join([piece async for piece in session.files.read_tar("/workspace")])
                await session.files.write_tar("/workspace/again", _pieces(owned(packed)))
        assert (await root.files.stat("/workspace/again/app.py")).uid == 0


def owned(packed: bytes) -> bytes:
    """The same, with owners."""
    written = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(packed)) as archive,
        tarfile.open(fileobj=written, mode="w") as copy,
    ):
        for entry in archive:
            entry.uname = entry.gname = "somebody"
            entry.uid = entry.gid = 77
            copy.addfile(entry, archive.extractfile(entry))
    return written.getvalue()


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def test_owners_of_long_paths_are_restored(runtime: LocalRuntime) -> None:
    run_id = new_run_id()
    await runtime.start(run_id, OBEDIENT, LIMITS)
    user = await runtime.session(run_id)
    deep = "for n in $(seq 20); do mkdir $(printf %0250d $n); cd $(printf %0250d $n); done"
    script = f"{deep}; echo deep > own; sudo mkdir of-root; sudo sh -c 'echo x > of-root/file'"
    assert await said(user, script) == (0, "")
    ended = await runtime.stop(run_id)
    assert ended.snapshot is not None, ended.snapshot_error
    async with started(runtime, replace(OBEDIENT, snapshot_id=ended.snapshot.id)) as restored:
        again = await runtime.session(restored.run_id)
        enter = deep.replace("mkdir", ": ")
        _, told = await said(again, f"ls -A; {enter}; stat -c %u own of-root of-root/file")
        assert ".sandyard-system" not in told
        assert told.split()[-3:] == ["1000", "0", "0"]

"""A hostile program leaves files that should harm who reads them, and they do not."""

from pathlib import Path

from sandyard.runtime.model import FileChanges, Files, Program
from tests.integration.runtime.attacks.storage import SMALL, is_refused_more
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import (
    LIMITS,
    MEGABYTE,
    OBEDIENT,
    inside,
    new_run_id,
    started,
)


async def what_it_leaves_for_the_snapshot_does_no_harm(runtime: LocalRuntime, _: Path) -> None:
    """Links to the host, pipes, sockets, odd names, a deep tree and a huge hole: packed and
    restored as they are, in its own workspace."""
    code = """
import os, socket
os.symlink("/etc/shadow", "shadow")
os.symlink("/", "root")
os.symlink("../../../../..", "up")
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
for name in (b"-rf", b"--checkpoint-action=exec=sh x", b"new\\nline", b"\\xff\\xfe", b"* ?"):
    open(name, "wb").write(b"odd")
open("closed", "w").write("mine")
os.chmod("closed", 0)
os.mkdir("shut")
open("shut/inner", "w").write("mine too")
os.chmod("shut", 0)
with open("hole", "wb") as file:
    file.truncate(200 << 20)
os.link("hole", "same hole")
for _ in range(150):
    os.mkdir("d")
    os.chdir("d")
open("bottom", "w").write("deep")
os.chdir("/workspace")
try:
    os.mknod("device", 0o20600, os.makedev(1, 1))
    print("made a device")
except PermissionError:
    pass
"""
    look = """
import os
print(os.readlink("shadow"), os.readlink("up"), os.lstat("closed").st_mode & 0o777,
      os.lstat("shut").st_mode & 0o777, os.path.getsize("hole"),
      os.lstat("hole").st_ino == os.lstat("same hole").st_ino,
      open("d/" * 150 + "bottom").read(), open(b"new\\nline").read(),
      os.lstat("closed").st_uid == os.getuid())
"""
    expected = f"/etc/shadow ../../../../.. 0 0 {200 << 20} True deep odd True"
    first = new_run_id()
    running = await runtime.start(first, OBEDIENT, LIMITS)
    assert await inside(runtime, running, code) == ""
    assert await inside(runtime, running, look) == expected
    ended = await runtime.stop(first)
    assert ended.snapshot is not None, ended.snapshot_error
    assert ended.snapshot.size_bytes < 5 * MEGABYTE
    await runtime.forget(first)
    again = Program(OBEDIENT.source, snapshot_id=ended.snapshot.id)
    async with started(runtime, again) as restored:
        assert await inside(runtime, restored, look) == expected


async def names_too_long_for_one_path_are_restored(runtime: LocalRuntime, _: Path) -> None:
    """A tree that no path reaches stops, and starts again."""
    code = """
import os
open("closed", "w").write("mine")
os.chmod("closed", 0)
for number in range(150):
    os.mkdir(f"{number:0250}")
    os.chdir(f"{number:0250}")
open("bottom", "w").write("deep")
os.link("bottom", "same")
os.symlink("bottom", "link")
os.chmod(".", 0o500)
os.chdir("/workspace")
"""
    look = """
import os
for number in range(150):
    os.chdir(f"{number:0250}")
print(open("link").read(), os.stat("same").st_nlink, oct(os.stat(".").st_mode & 0o777))
os.chdir("/workspace")
print(open("app.py").read()[:1] == "\\n", os.stat("closed").st_mode & 0o777)
"""
    first = new_run_id()
    running = await runtime.start(first, OBEDIENT, LIMITS)
    assert await inside(runtime, running, code) == ""
    expected = await inside(runtime, running, look)
    assert expected == "deep 2 0o500\nTrue 0"
    ended = await runtime.stop(first)
    assert ended.snapshot is not None, ended.snapshot_error
    await runtime.forget(first)
    again = Program(OBEDIENT.source, snapshot_id=ended.snapshot.id)
    async with started(runtime, again) as restored:
        assert await inside(runtime, restored, look) == expected


async def shut_folders_hide_nothing(runtime: LocalRuntime, _: Path) -> None:
    """A program that takes away the right to read its own folders is measured all the same."""
    code = """
import os
os.mkdir("shut")
files = [open(f"shut/{number}", "wb") for number in range(12)]
os.chmod("shut", 0)
os.chmod("/workspace", 0)
try:
    for file in files:
        file.write(os.urandom(5 << 20))
        file.flush()
except OSError:
    print("ENOSPC")
__import__("builtins").files = files
"""
    async with started(runtime, OBEDIENT, SMALL) as running:
        await is_refused_more(runtime, running, "import time" + code)
        ended = await runtime.stop(running.run_id)
        assert ended.snapshot is not None, ended.snapshot_error


async def links_do_not_lead_written_files_outside(runtime: LocalRuntime, folder: Path) -> None:
    outside = folder / "outside"
    outside.mkdir(exist_ok=True)
    outside.chmod(0o777)
    async with started(runtime) as running:
        await inside(
            runtime,
            running,
            f"import os; os.symlink({str(outside)!r}, 'site'); os.symlink('/etc/passwd', 'page')",
        )
        written = {"site/index.html": b"new", "page": b"plain"}
        await runtime.write_files(running.run_id, FileChanges(written=written))
        assert list(outside.iterdir()) == []
        assert await inside(runtime, running, "print(open('site/index.html').read())") == "new"
        assert await inside(runtime, running, "print(open('page').read())") == "plain"


async def a_procfile_that_is_a_link_is_none(runtime: LocalRuntime, _: Path) -> None:
    async with started(runtime) as running:
        await inside(runtime, running, "import os; os.remove('Procfile'); os.mkfifo('Procfile')")
        snapshot = (await runtime.stop(running.run_id)).snapshot
    assert snapshot is not None
    # A pipe would keep the reader waiting; here it counts as no Procfile, and files are served.
    program = Program(Files({}), snapshot_id=snapshot.id)
    async with started(runtime, program) as restored:
        assert b"app.py" in await runtime.fetch(restored)

"""A hostile program swaps folders for links while somebody works with its files."""

import asyncio
import io
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from sandyard.kit.errors import SandyardError
from sandyard.runtime.model import FileChanges
from sandyard.runtime.sessions.ports import Files
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import inside, started

_SECRET = b"of the host"
_ROUNDS = 5
_SWAP = """
import os, shutil, threading
os.makedirs("elsewhere", exist_ok=True)

def make():
    os.makedirs("real/below/deep", exist_ok=True)
    open("real/secret", "w").write("of the sandbox")

def clear():
    if os.path.islink("door"):
        os.unlink("door")
    shutil.rmtree("door", ignore_errors=True)

def swap(target):
    os.rename("real", "door")
    os.rename("door", "real")
    os.symlink(target, "door")
    os.unlink("door")

def swap_all():
    while not os.path.exists("enough"):
        for target in {targets!r}:
            try:
                swap(target)
            except OSError:
                clear()
                make()

make()
threading.Thread(target=swap_all, daemon=True).start()
"""


async def folders_that_turn_into_links_lead_nowhere(runtime: LocalRuntime, folder: Path) -> None:
    outside = folder / "swapped"
    outside.mkdir(exist_ok=True)
    outside.chmod(0o777)
    (outside / "secret").write_bytes(_SECRET)
    (outside / "secret").chmod(0o666)
    before = _content(outside)
    targets = [str(outside), "/proc/1/root" + str(outside), "/proc/self/cwd", "elsewhere"]
    async with started(runtime) as running:
        await inside(runtime, running, _SWAP.format(targets=targets))
        session = await runtime.session(running.run_id)
        root = session.as_root()
        for files in (session.files, *([] if root is None else [root.files])):
            async with asyncio.timeout(60):
                seen = [await _work_with(files) for _ in range(_ROUNDS)]
            assert _SECRET not in b"".join(seen)
        await inside(runtime, running, "open('enough', 'w')")
        assert "applied" not in await inside(
            runtime, running, "import os; print(os.listdir('elsewhere'))"
        ), "what is applied passes through no link"
    assert _content(outside) == before


async def _work_with(files: Files) -> bytes:
    """Each call once; what was read. Any may be refused, or break off."""
    calls: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: _read(files),
        lambda: _tar(files),
        lambda: files.write("door/written", _pieces(b"w")),
        lambda: files.apply(FileChanges({"door/applied": b"a", "door/below/applied": b"a"})),
        lambda: files.write_tar("door", _pieces(_packed())),
        lambda: files.make_folder("door/below/made"),
        lambda: files.list("door", depth=3),
        lambda: files.stat("door/secret"),
        lambda: files.move("door/written", "door/moved"),
        lambda: files.remove("door/below"),
    )
    seen = b""
    for call in calls:
        with suppress(SandyardError):
            found = await call()
            seen += found if isinstance(found, bytes) else repr(found).encode()
    return seen


async def _read(files: Files) -> bytes:
    return b"".join([piece async for piece in files.read("door/secret")])


async def _tar(files: Files) -> bytes:
    return b"".join([piece async for piece in files.read_tar("door")])


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _packed() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("below/deep/unpacked", "unpacked"):
            entry = tarfile.TarInfo(name)
            entry.size = 1
            archive.addfile(entry, io.BytesIO(b"u"))
    return packed.getvalue()


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

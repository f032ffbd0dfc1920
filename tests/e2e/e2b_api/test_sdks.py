"""E2B's own SDKs against a server: every call, by scripts that know nothing of Sandyard."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.e2b_api.conftest import E2bServer
from tests.support.servers.processes import clean_environment

ROOT = Path(__file__).parents[3]
SCRIPTS = Path(__file__).with_name("scripts")
MODULES = ROOT / ".tools" / "e2b-js" / "node_modules"


@pytest.fixture(scope="module")
def kernels() -> Path:
    return ROOT / ".tools" / "kernels"


def run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        env=clean_environment(environment),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_call_of_the_python_sdk(e2b: E2bServer) -> None:
    run([sys.executable, str(SCRIPTS / "sync_calls.py")], e2b.environment())


def test_what_is_kept_for_other_sandboxes(e2b: E2bServer) -> None:
    run([sys.executable, str(SCRIPTS / "kept_calls.py")], e2b.environment())


def test_volumes(e2b: E2bServer) -> None:
    run([sys.executable, str(SCRIPTS / "volume_calls.py")], e2b.environment())


def test_every_call_of_the_asynchronous_python_sdk(e2b: E2bServer) -> None:
    run([sys.executable, str(SCRIPTS / "async_calls.py")], e2b.environment())


def test_every_call_of_the_javascript_sdk(e2b: E2bServer) -> None:
    run(["node", str(SCRIPTS / "calls.mjs"), str(MODULES)], e2b.environment())


def test_the_code_interpreter(e2b: E2bServer) -> None:
    run([sys.executable, str(SCRIPTS / "interpreter.py")], e2b.environment())


def test_many_sandboxes_at_once(e2b: E2bServer) -> None:
    run([sys.executable, str(SCRIPTS / "concurrent_calls.py"), "6"], e2b.environment())


@pytest.mark.torture
def test_fifty_sandboxes_at_once(e2b: E2bServer) -> None:
    run([sys.executable, str(SCRIPTS / "concurrent_calls.py"), "50"], e2b.environment())

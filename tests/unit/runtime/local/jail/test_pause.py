"""The program that waits runs by itself, and waits."""

import subprocess
from pathlib import Path

import pytest

from sandyard.runtime.local.jail import pause


def test_it_runs_without_any_library_and_ends_only_by_a_signal(tmp_path: Path) -> None:
    content = pause.program()
    assert content is not None
    file = tmp_path / "pause"
    file.write_bytes(content)
    file.chmod(0o500)
    with subprocess.Popen([file], env={}) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.terminate()
        assert process.wait(10) == -15

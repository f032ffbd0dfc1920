"""Programs of a few instructions run from memory, and leave nothing open."""

import os
import signal
from pathlib import Path

import pytest

from sandyard.runtime.local.jail import pause
from sandyard.runtime.local.jail.elf import program_file


def test_a_program_runs_from_memory() -> None:
    content = pause.program()
    assert content is not None
    with program_file(content) as path:
        assert Path(path).exists()
        pid = os.posix_spawn(path, ["pause"], {})
    assert not os.path.lexists(path)
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM


def test_what_is_no_program_is_an_error() -> None:
    with program_file(b"no program") as path, pytest.raises(OSError, match="format"):
        os.posix_spawn(path, ["x"], {})

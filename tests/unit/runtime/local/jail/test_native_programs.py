"""The prebuilt programs are those of their sources, and run without any library."""

import hashlib
import os
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from sandyard.runtime.local.jail import native_programs
from sandyard.runtime.local.jail.native_programs import become_words, program_file, start_program

_FOLDER = Path(native_programs.__file__).parent / "native"


def program() -> bytes:
    found = start_program()
    assert found is not None
    return found


def test_sources_and_programs_are_those_that_were_built_together() -> None:
    lines = (_FOLDER / "SHA256SUMS").read_text().splitlines()
    pinned = {name: digest for digest, name in map(str.split, lines)}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in _FOLDER.iterdir()
        if path.name not in ("SHA256SUMS", "build.sh")
    }
    assert found == pinned


def segments_of(file: bytes) -> list[tuple[int, int]]:
    """The type and flags of each segment, from the table of a 64-bit ELF file."""
    (begin,) = struct.unpack_from("<Q", file, 32)
    size, count = struct.unpack_from("<HH", file, 54)
    return [struct.unpack_from("<II", file, begin + size * each) for each in range(count)]


@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
@pytest.mark.parametrize("name", ["start", "sudo"])
def test_a_program_is_static_and_has_no_executable_stack(name: str, processor: str) -> None:
    segments = segments_of((_FOLDER / f"{name}.{processor}").read_bytes())
    dynamic, interpreter, all_rights = 2, 3, 7
    assert segments
    assert not {kind for kind, _ in segments} & {dynamic, interpreter}
    assert all(flags != all_rights for _, flags in segments)


def test_the_first_process_ends_only_by_a_signal(tmp_path: Path) -> None:
    file = tmp_path / "pause"
    file.write_bytes(program())
    file.chmod(0o500)
    with subprocess.Popen([file], env={}) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.terminate()
        assert process.wait(10) == -signal.SIGTERM


def test_a_program_runs_from_memory_and_leaves_nothing_open() -> None:
    with program_file(program()) as path:
        assert Path(path).exists()
        pid = os.posix_spawn(path, ["pause"], {})
    assert not os.path.lexists(path)
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM


def test_a_file_that_is_not_a_program_is_an_error() -> None:
    with program_file(b"no program") as path, pytest.raises(OSError, match="format"):
        os.posix_spawn(path, ["x"], {})


def test_a_program_keeps_only_the_named_descriptors() -> None:
    kept, closed = os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_RDONLY)
    for descriptor in (kept, closed):
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - its own way
    script = f"test -e /proc/$$/fd/{kept} && ! test -e /proc/$$/fd/{closed}"
    try:
        with program_file(program()) as path:
            words = [*become_words(None, {}, [kept]), "/bin/sh", "-c", script]
            pid = os.posix_spawn(path, words, {})
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        os.close(kept)
        os.close(closed)


def test_a_program_whose_parent_has_ended_does_not_run() -> None:
    words = become_words(None, {}, [])
    words[2] = "1"  # another parent than this process
    with program_file(program()) as path:
        pid = os.posix_spawn(path, [*words, "/bin/true"], {})
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 127

"""A backup or restore that takes its time shows a bar to a person at a terminal."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandyard.entrypoints.server.data_dir import RESTORING
from tests.support.servers.processes import clean_environment, run_command

LARGE = 64 << 30
"""So many zeros are read for minutes, and take no room."""
SOME = 128 << 20
TRIES = 5
"""A restore may be done before a busy machine comes to stop it; then another is begun."""
BAR_SEC = 2
"""After which a bar is shown."""


def test_a_long_backup_shows_how_far_it_is_and_leaves_nothing_when_it_is_stopped(
    tmp_path: Path,
) -> None:
    data = data_dir_of(tmp_path, snapshot_bytes=LARGE)
    command = ("backup", str(tmp_path / "b"), "--data-dir", str(data))
    with at_a_terminal(*command) as (process, terminal):
        assert shows(terminal, "back up")
        process.send_signal(signal.SIGINT)
        while _goes_on(terminal):
            pass
        assert process.wait(60) != 0
    assert [each.name for each in tmp_path.iterdir()] == ["data"]


def test_a_long_restore_shows_how_far_it_is_and_leaves_nothing_when_it_is_stopped(
    tmp_path: Path,
) -> None:
    file = tmp_path / "backup"
    command = ["backup", str(file), "--data-dir", str(data_dir_of(tmp_path, snapshot_bytes=SOME))]
    run_command(*command).check_returncode()
    assert any(is_stopped_with_its_bar(file, tmp_path / f"new-{each}") for each in range(TRIES))


def is_stopped_with_its_bar(file: Path, new: Path) -> bool:
    """Restore, and stop it once its bar is there; False if it was done before that."""
    command = ["restore", str(file), "--data-dir", str(new), "--same-node"]
    with at_a_terminal(*command) as (process, terminal):
        while not (new / RESTORING).exists() and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(signal.SIGSTOP)  # it takes its time, however fast this machine is
        time.sleep(BAR_SEC + 0.1)
        process.send_signal(signal.SIGCONT)
        is_shown = shows(terminal, "restore")
        process.send_signal(signal.SIGINT)
        while _goes_on(terminal):
            pass
        code = process.wait(60)
    if not (new / RESTORING).exists() and (new / "node").exists():
        return False
    assert code != 0
    assert is_shown
    assert [each.name for each in new.iterdir() if each.name != "lock"] == []
    return True


def data_dir_of(folder: Path, *, snapshot_bytes: int) -> Path:
    data = folder / "data"
    (data / "runtime/snapshots").mkdir(parents=True)
    (data / "node").write_text("n1")
    with (data / "runtime/snapshots/sbx-1.snapshot").open("wb") as file:
        file.truncate(snapshot_bytes)
    return data


@contextmanager
def at_a_terminal(*command: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The command, and the terminal that shows its stderr."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "sandyard", *command],
        env=clean_environment({"TERM": "xterm"}),
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait(60)
        os.close(ours)


def shows(terminal: int, what: str) -> bool:
    """Whether a bar of this comes before the end."""
    shown = b""
    while not (what.encode() in shown and "━".encode() in shown):
        try:
            shown += os.read(terminal, 4096)
        except OSError:
            return False
    return True


def _goes_on(terminal: int) -> bool:
    """A terminal that nobody writes to any more is an error on Linux."""
    try:
        return bool(os.read(terminal, 4096))
    except OSError:
        return False

"""A backup that takes its time shows a bar to a person at a terminal."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

from tests.servers import clean_environment

LARGE = 64 << 30
"""So many zeros are read for minutes, and take no room."""


def test_a_long_backup_shows_how_far_it_is_and_leaves_nothing_when_it_is_stopped(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    (data / "runtime/snapshots").mkdir(parents=True)
    (data / "node").write_text("n1")
    with (data / "runtime/snapshots/sbx-1.snapshot").open("wb") as file:
        file.truncate(LARGE)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "sandyard", "backup", str(tmp_path / "b"), "--data-dir", str(data)],
        env=clean_environment({"TERM": "xterm"}),
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while not (b"back up" in shown and "━".encode() in shown):
        shown += os.read(ours, 4096)
    process.send_signal(signal.SIGINT)
    while _goes_on(ours):
        pass
    assert process.wait(60) != 0
    os.close(ours)
    assert [each.name for each in tmp_path.iterdir()] == ["data"]


def _goes_on(terminal: int) -> bool:
    """A terminal that nobody writes to any more is an error on Linux."""
    try:
        return bool(os.read(terminal, 4096))
    except OSError:
        return False

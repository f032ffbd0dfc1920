"""The uids of sandboxes: one for each, and a lock that only the server can hold."""

import stat
from pathlib import Path

from sandyard.runtime.local.server.uids import Uids


def test_nobody_else_can_open_the_lock(tmp_path: Path) -> None:
    """Who can open it can hold it, and no sandbox would start; 0.2.0 let everyone read it."""
    folder, run_folder = tmp_path / "uids", tmp_path / "run"
    folder.mkdir()
    run_folder.mkdir()
    (folder / "lock").touch(mode=0o644)
    assert Uids(folder, range(7, 9)).take(run_folder) in (7, 8)
    assert stat.S_IMODE((folder / "lock").stat().st_mode) == 0o600

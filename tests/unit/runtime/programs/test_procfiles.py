"""Only a regular file is read as a Procfile."""

import os
from pathlib import Path

from sandyard.runtime.programs.start import read_procfile
from tests.fakes.session import FakeMachine


async def test_only_a_regular_procfile_is_read(tmp_path: Path) -> None:
    session = await FakeMachine(tmp_path).connect()
    procfile = tmp_path / "Procfile"
    assert await read_procfile(session, None) is None
    procfile.symlink_to("/etc/passwd")
    assert await read_procfile(session, None) is None
    procfile.unlink()
    os.mkfifo(procfile)
    assert await read_procfile(session, None) is None
    procfile.unlink()
    procfile.mkdir()
    assert await read_procfile(session, None) is None
    procfile.rmdir()
    procfile.write_bytes(b"web: x\xff")
    assert await read_procfile(session, None) == "web: x\N{REPLACEMENT CHARACTER}"

"""Volumes in a cluster, by pure functions."""

import os
import subprocess
from pathlib import Path

from sandyard.runtime.kubernetes.claims import copying_pod
from sandyard.runtime.kubernetes.manifest import PodImage, PodOptions


def test_a_copy_leaves_the_roots_of_volumes_as_they_are(tmp_path: Path) -> None:
    """They are root's, who does not copy."""
    pod = copying_pod("a", "b", PodOptions("agent", PodImage("debian")), seconds=60)
    source, target = tmp_path / "from", tmp_path / "to"
    for each in ("lost+found", ".hidden", "folder"):
        (source / each).mkdir(parents=True)
    (source / "folder" / "file").write_text("kept")
    (source / "folder").chmod(0o700)
    target.mkdir()
    os.utime(source, (1, 1))
    [container] = pod["spec"]["containers"]
    folders = {
        "/from": str(source),
        "/to": str(target),
        "/from/.": f"{source}/.",
        "/to/": str(target),
    }
    subprocess.run([folders.get(each, each) for each in container["command"]], check=True)
    assert {each.name for each in target.iterdir()} == {".hidden", "folder"}
    assert (target / "folder" / "file").read_text() == "kept"
    assert (target / "folder").stat().st_mode & 0o777 == 0o700
    assert target.stat().st_mtime != 1

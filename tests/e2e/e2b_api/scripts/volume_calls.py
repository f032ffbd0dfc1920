"""Volumes, which outlive the sandboxes that mount them.

Run with E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL set; it ends with 0 if all is well.
"""

import os

import pytest
from e2b import Sandbox, SandboxException, Volume
from e2b.exceptions import VolumeException, VolumeNotFoundException


def main() -> None:
    volume = Volume.create("kept-models")
    assert [(each.volume_id, each.name) for each in Volume.list()] == [
        (volume.volume_id, "kept-models")
    ]
    found = Volume.connect(volume.volume_id)
    assert (found.name, Volume.get_info(volume.volume_id).name) == ("kept-models", "kept-models")
    with pytest.raises(VolumeException, match="name"):
        Volume.create("kept-models")
    first = Sandbox.create(timeout=120, volume_mounts={"/home/user/models": volume})
    try:
        first.files.write("models/weights", "one")
        assert first.get_info().volume_mounts == [
            {"name": "kept-models", "path": "/home/user/models"}
        ]
        with pytest.raises(SandboxException, match=first.sandbox_id):
            Sandbox.create(volume_mounts={"/data": volume})
        with pytest.raises(VolumeException, match=first.sandbox_id):
            Volume.destroy(volume.volume_id)
    finally:
        first.kill()
    second = Sandbox.create(timeout=120, volume_mounts={"/data": "kept-models"})
    try:
        assert second.commands.run("cat /data/weights; touch /data/more").stdout == "one"
    finally:
        second.kill()
    assert Volume.destroy(volume.volume_id)
    assert not Volume.destroy(volume.volume_id)
    with pytest.raises(VolumeNotFoundException):
        Volume.get_info(volume.volume_id)
    with pytest.raises(SandboxException, match="volume"):
        Sandbox.create(volume_mounts={"/data": "kept-models"})


if __name__ == "__main__":
    main()
    # The SDK's HTTP library now and then aborts while Python ends; by then all is well.
    os._exit(0)

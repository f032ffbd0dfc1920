"""Volumes, which outlive the sandboxes that mount them.

Run with E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL set; it ends with 0 if all is well.
"""

import io
import os

import pytest
from e2b import AuthenticationException, Sandbox, SandboxException, Volume
from e2b.exceptions import (
    VolumeException,
    VolumeNotFoundException,
    VolumePathNotFoundException,
)


def main() -> None:
    os.environ["E2B_VOLUME_API_URL"] = os.environ["E2B_API_URL"]
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
    with pytest.raises(VolumePathNotFoundException):
        volume.read_file("/no/such")
    contents(volume)
    third = Sandbox.create(timeout=120, volume_mounts={"/data": volume})
    try:
        assert third.commands.run("stat -c %U:%a /data/sub/text").stdout == "user:640\n"
        volume.write_file("/sub/text", "changed")
        assert third.commands.run("cat /data/sub/text; echo more > /data/new").stdout == "changed"
        assert volume.read_file("/new") == "more\n"
    finally:
        third.kill()
    assert Volume.destroy(volume.volume_id)
    assert not Volume.destroy(volume.volume_id)
    with pytest.raises(VolumeNotFoundException):
        Volume.get_info(volume.volume_id)
    with pytest.raises(SandboxException, match="volume"):
        Sandbox.create(volume_mounts={"/data": "kept-models"})


def contents(volume: Volume) -> None:
    """While no sandbox has it."""
    assert volume.read_file("weights") == "one"
    assert volume.make_dir("/sub/deep", force=True).type.value == "directory"
    with pytest.raises(VolumePathNotFoundException):
        volume.make_dir("/no/such")
    volume.write_file("/sub/text", "text", mode=0o640)
    assert volume.read_file("/sub/text", format="bytes") == b"text"
    big = bytes(range(256)) * 10_000
    assert volume.write_file("/sub/big", io.BytesIO(big)).size == len(big)
    assert b"".join(volume.read_file("/sub/big", format="stream")) == big
    entries = {each.path: each for each in volume.list("/", depth=2)}
    assert {"/sub", "/sub/deep", "/sub/text", "/sub/big", "/weights", "/more"} == entries.keys()
    assert entries["/sub/text"].mode & 0o777 == 0o640
    assert volume.update_metadata("/sub/big", mode=0o600, uid=0).uid == 0
    assert volume.get_info("/sub/big").mode & 0o777 == 0o600
    volume.remove("/sub/big")
    assert not volume.exists("/sub/big")
    assert volume.exists("../../sub/text")  # nothing is above it
    other = Volume.create("other")
    for token in ("acc-1/login.00", other.token):
        with pytest.raises(AuthenticationException):
            Volume(volume.volume_id, volume.name, token=token).read_file("weights")
    assert Volume.destroy(other.volume_id)


if __name__ == "__main__":
    main()
    # The SDK's HTTP library now and then aborts while Python ends; by then all is well.
    os._exit(0)

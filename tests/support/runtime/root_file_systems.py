"""Root file systems for the tests: tar archives and OCI layouts made by hand."""

import gzip
import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def member(name: str, content: bytes | None = None, **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    """A file, or a folder without content; other kinds by `type` and `linkname`."""
    made = tarfile.TarInfo(name)
    made.mode = 0o755
    made.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
    made.size = len(content or b"")
    for field, value in fields.items():
        setattr(made, field, value)
    return made, content or b""


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.SYMTYPE, linkname=target)


def hard_link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.LNKTYPE, linkname=target)


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for each, content in members:
            archive.addfile(each, io.BytesIO(content))
    return packed.getvalue()


def image_config(**config: Any) -> bytes:
    """The settings of an image for this machine."""
    machine = platform.machine()
    whole = {"os": "linux", "architecture": _MACHINES.get(machine, machine), "config": config}
    return json.dumps(whole).encode()


def oci_layout(
    folder: Path, *layers: bytes, env: Iterable[str] = (), config: bytes | None = None
) -> Path:
    """A layout of one image; layers as they are given, packed or not."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(content: bytes, **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content), **more}

    machine = platform.machine()
    here = {"os": "linux", "architecture": _MACHINES.get(machine, machine)}
    settings = blob(config or json.dumps({"config": {"Env": list(env)}}).encode())
    manifest = {"config": settings, "layers": [blob(layer) for layer in layers]}
    foreign = {"digest": "sha256:" + "0" * 64, "platform": {"os": "plan9", "architecture": "x"}}
    inner = {"manifests": [foreign, blob(json.dumps(manifest).encode(), platform=here)]}
    index = {"manifests": [blob(json.dumps(inner).encode())]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder


def docker_archive(*layers: bytes, config: bytes) -> bytes:
    """As `docker save` wrote it before version 25."""
    names = [f"{number}/layer.tar" for number, _ in enumerate(layers)]
    listed = [{"Config": "config.json", "RepoTags": ["app:1"], "Layers": names}]
    parts = [member(name, layer) for name, layer in zip(names, layers, strict=True)]
    manifest = member("manifest.json", json.dumps(listed).encode())
    return tar(manifest, member("config.json", config), *parts)


def small_root(*more: str) -> list[tuple[tarfile.TarInfo, bytes]]:
    """A shell and `cat` of this machine with the libraries that they need, and nothing more."""
    found = {}
    for name in ("sh", "cat", "ls", "sleep", *more):
        program = Path(shutil.which(name, path="/usr/bin:/bin") or "").resolve()
        found[f"bin/{name}"] = program
        words = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True)
        for word in words.stdout.split():
            if word.startswith("/"):
                found[word.lstrip("/")] = Path(word)
    return [member(path, source.read_bytes()) for path, source in found.items()]


def gzipped(content: bytes) -> bytes:
    return gzip.compress(content, compresslevel=1, mtime=0)

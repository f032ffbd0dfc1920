"""Archives that no backup made."""

import io
import json
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path


def forged(
    folder: Path,
    *members: tuple[tarfile.TarInfo, bytes],
    manifest: Callable[[dict[str, object]], object],
    text: bytes | None = None,
) -> Path:
    """An archive that somebody else made, with a manifest that names all that is in it, or with
    this text instead."""
    named = {
        info.name: {"size": len(content), "sha256": sha256(content).hexdigest()}
        for info, content in members
    }
    if text is None:
        text = json.dumps(manifest({"format": 1, "about": {}, "files": named})).encode()
    path = folder / "forged"
    with tarfile.open(path, "w:gz") as tar:
        for info, content in (*members, (tarfile.TarInfo("manifest.json"), text)):
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info

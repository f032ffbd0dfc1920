"""Debian's docker-registry as a process, and pushes to it."""

import hashlib
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from sandyard.kit.free_ports import free_port

USERNAME, PASSWORD = "ann", "registry-password"
_HTPASSWD = "ann:$2y$05$B9yERxHfqAECqv/nHQ1RwOEGx0j72CGhDQINQJmXv5ZPBQcYknPD6\n"
_CONFIG = """version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
_AUTH = "auth: {{htpasswd: {{realm: tests, path: {path}}}}}\n"
_PIECE = 1 << 20
_KIND = "application/vnd.oci.image"


class Registry:
    def __init__(self, host: str, folder: Path, *, has_auth: bool) -> None:
        self.host = host
        self.folder = folder
        self._client = httpx.Client(
            base_url=f"http://{host}", auth=(USERNAME, PASSWORD) if has_auth else None
        )

    def push(self, name: str, *layers: bytes, config: bytes) -> str:
        """The digest of the image, which is `repository:tag`."""
        repository, _, tag = name.partition(":")
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_KIND}.manifest.v1+json",
            "config": self._blob(repository, config, "config.v1+json"),
            "layers": [self._blob(repository, each, "layer.v1.tar") for each in layers],
        }
        return self.push_manifest(repository, tag, manifest)

    def push_manifest(self, repository: str, tag: str, manifest: dict[str, object]) -> str:
        sent = self._client.put(
            f"/v2/{repository}/manifests/{tag}",
            content=json.dumps(manifest),
            headers={"Content-Type": str(manifest["mediaType"])},
        )
        assert sent.status_code == 201, sent.text
        return sent.headers["Docker-Content-Digest"]

    def _blob(self, repository: str, content: bytes, kind: str) -> dict[str, object]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        begun = self._client.post(f"/v2/{repository}/blobs/uploads/")
        place = httpx.URL(begun.headers["Location"]).copy_merge_params({"digest": digest})
        pieces = (content[at : at + _PIECE] for at in range(0, len(content), _PIECE))
        size = {"Content-Length": str(len(content))}  # a whole one would be copied for each write
        sent = self._client.put(place, content=pieces, headers=size, timeout=60)
        assert sent.status_code == 201, sent.text
        return {"mediaType": f"{_KIND}.{kind}", "digest": digest, "size": len(content)}

    def blob_path(self, digest: str) -> Path:
        """Where the registry has this part."""
        name = digest.removeprefix("sha256:")
        return self.folder / f"docker/registry/v2/blobs/sha256/{name[:2]}/{name}/data"

    def wait(self) -> None:
        for _ in range(200):
            try:
                if self._client.get("/v2/").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError("the registry did not start")

    def close(self) -> None:
        self._client.close()


@contextmanager
def running_registry(folder: Path, *, has_auth: bool = False) -> Iterator[Registry]:
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    config = _CONFIG.format(folder=folder / "storage", port=port)
    if has_auth:
        (folder / "users").write_text(_HTPASSWD)
        config += _AUTH.format(path=folder / "users")
    (folder / "config.yml").write_text(config)
    command = ["docker-registry", "serve", str(folder / "config.yml")]
    log = (folder / "log").open("wb")
    with log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        registry = Registry(f"127.0.0.1:{port}", folder / "storage", has_auth=has_auth)
        try:
            registry.wait()
            yield registry
        finally:
            registry.close()
            process.terminate()

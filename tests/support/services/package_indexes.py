"""A package index and an npm registry of the tests' own, on an address of this machine."""

import base64
import fcntl
import hashlib
import io
import json
import re
import shutil
import socket
import ssl
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.support.servers.certificates import Certificate


def _own_address() -> str:
    """Not one of the loopback, which are the sandbox's own to a program inside."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(("192.0.2.1", 9))  # nothing is sent: it picks the address of this machine
        return str(asked.getsockname()[0])


HOST = _own_address()
NETWORK = f"{HOST}/32"
_TOOLS = Path(__file__).parents[3] / ".tools"


@dataclass(frozen=True, slots=True)
class PackageIndex:
    url: str
    asked: list[str]
    """The path of each request."""

    @property
    def pip_index_url(self) -> str:
        return f"{self.url}/simple"

    @property
    def npm_registry(self) -> str:
        return f"{self.url}/npm/"

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "sandbox_egress_networks": NETWORK,
            "sandbox_pip_index_url": self.pip_index_url,
            "sandbox_npm_registry": self.npm_registry,
        }


@contextmanager
def package_index(
    *,
    wheels: Mapping[str, bytes],
    packages: Mapping[str, bytes],
    certificate: Certificate | None = None,
) -> Iterator[PackageIndex]:
    """Serves wheels by their file names, and npm packages as archives by `name@version`; over TLS
    with a certificate for `HOST`."""
    asked: list[str] = []

    class Handler(_Handler):
        pass

    Handler.wheels, Handler.packages, Handler.asked = wheels, packages, asked
    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    if certificate is not None:
        server.socket = certificate.serving().wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        scheme = "http" if certificate is None else "https"
        yield PackageIndex(f"{scheme}://{HOST}:{server.server_address[1]}", asked)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wheels: Mapping[str, bytes] = {}
    packages: Mapping[str, bytes] = {}
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        match self.path.split("?")[0].strip("/").split("/", 1):
            case ["simple", name]:
                self._list_wheels(name.strip("/"))
            case ["files", name]:
                self._say("application/zip", self.wheels.get(name))
            case ["npm", name] if name.startswith("-/"):
                self._say("application/gzip", self.packages.get(unquote(name[2:])))
            case ["npm", name]:
                self._describe(unquote(name))
            case _:
                self._say("text/plain", None)

    def _list_wheels(self, name: str) -> None:
        found = [each for each in self.wheels if _plain(each.split("-")[0]) == _plain(name)]
        links = "".join(f'<a href="/files/{each}">{each}</a>\n' for each in found)
        self._say("text/html", links.encode() if found else None)

    def _describe(self, name: str) -> None:
        versions = {
            key.rpartition("@")[2]: content
            for key, content in self.packages.items()
            if key.rpartition("@")[0] == name
        }
        described = {version: self._version(name, each) for version, each in versions.items()}
        told = {
            "name": name,
            "versions": described,
            "dist-tags": {"latest": max(versions, default="")},
        }
        self._say("application/json", json.dumps(told).encode() if versions else None)

    def _version(self, name: str, content: bytes) -> dict[str, Any]:
        manifest = manifest_of(content)
        scheme = "https" if isinstance(self.connection, ssl.SSLSocket) else "http"
        host, port = self.connection.getsockname()
        folder = f"{scheme}://{host}:{port}/npm/-"
        tarball = f"{folder}/{name.replace('/', '%2f')}@{manifest['version']}"
        digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
        return manifest | {"dist": {"tarball": tarball, "integrity": f"sha512-{digest}"}}

    def _say(self, kind: str, body: bytes | None) -> None:
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its own name
        """Say nothing."""


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def manifest_of(content: bytes) -> dict[str, Any]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        [member] = [
            each
            for each in archive
            if each.name.count("/") == 1 and each.name.endswith("/package.json")
        ]
        file = archive.extractfile(member)
        assert file is not None
        found: dict[str, Any] = json.load(file)
        return found


def small_wheel(name: str, code: str) -> dict[str, bytes]:
    """A package of one module and a command of its name, as a wheel by its file name."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    record = "".join(f"{path},,\n" for path in files)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, content)
    return {f"{name}-1.0-py3-none-any.whl": packed.getvalue()}


def small_package(name: str, code: str) -> dict[str, bytes]:
    """An npm package with a command of its name."""
    manifest = {"name": name, "version": "1.0.0", "main": "index.js", "bin": {name: "index.js"}}
    return {f"{name}@1.0.0": _tarball({"package.json": json.dumps(manifest), "index.js": code})}


def downloaded_wheels(*names: str) -> dict[str, bytes]:
    """These packages and what they need, for the system's Python; fetched once and kept."""
    folder = _TOOLS / ("wheels-" + "-".join(names))
    with _made_once(folder) as draft:
        command = ["/usr/bin/python3", "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
        if draft is not None:
            subprocess.run([*command, "--dest", str(draft), *names], check=True)
    return {path.name: path.read_bytes() for path in folder.glob("*.whl")}


def installed_packages(*names: str) -> dict[str, bytes]:
    """These npm packages and what they need, as archives; fetched once and kept."""
    folder = _TOOLS / ("npm-" + "-".join(re.sub(r"\W", "_", name) for name in names))
    with _made_once(folder) as draft:
        command = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts"]
        if draft is not None:
            (draft / "package.json").write_text("{}")
            subprocess.run([*command, "--prefix", str(draft), *names], check=True, cwd=draft)
    found = {}
    for path in (folder / "node_modules").rglob("package.json"):
        if path.parent.parent.name == "node_modules" or path.parent.parent.name.startswith("@"):
            manifest = json.loads(path.read_bytes())
            if "version" in manifest and "name" in manifest:
                found[f"{manifest['name']}@{manifest['version']}"] = _packed(path.parent)
    return found


@contextmanager
def _made_once(folder: Path) -> Iterator[Path | None]:
    """A draft to be filled, which becomes the folder; None if it is there. Workers take turns."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            yield None
            return
        draft = folder.with_suffix(".draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        yield draft
        draft.rename(folder)


def _packed(folder: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        archive.add(folder, "package", filter=_no_nested)
    return packed.getvalue()


def _no_nested(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "/node_modules" in member.name else member


def _tarball(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(f"package/{path}")
            member.size, member.mode = len(content.encode()), 0o755
            archive.addfile(member, io.BytesIO(content.encode()))
    return packed.getvalue()

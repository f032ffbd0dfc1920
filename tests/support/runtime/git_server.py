"""A git server on loopback over https, with the redirects and refusals that clones must survive."""

import base64
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.servers.certificates import Certificate, make_certificate

TOKEN = "ghp-0123456789abcdefghij"
"""Opens the repositories whose names begin with `secret`."""
_BACKEND = ["git", "http-backend"]
_GIT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


@dataclass(frozen=True)
class GitServer:
    url: str
    ca_file: Path
    folder: Path

    def add(self, name: str, files: dict[str, bytes], *commands: str) -> str:
        """A repository with these files, after these shell commands in it; its URL."""
        folder = self.folder / name
        folder.mkdir()
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        self.run(
            name,
            "git init --quiet --initial-branch=main",
            *commands,
            "git add --all",
            "git commit --quiet --message first",
        )
        return f"{self.url}/{name}/.git"

    def run(self, name: str, *commands: str) -> None:
        for command in commands:
            subprocess.run(["sh", "-c", command], cwd=self.folder / name, env=_GIT, check=True)


@contextmanager
def git_server(folder: Path, certificate: Certificate | None = None) -> Iterator[GitServer]:
    repositories = folder / "repositories"
    repositories.mkdir()
    certificate = certificate or make_certificate(folder, "IP:127.0.0.1", "DNS:localhost")

    class Handler(_Handler):
        root = repositories

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False  # a client that keeps its connection is not waited for
    server.socket = certificate.serving().wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        url = f"https://127.0.0.1:{server.server_address[1]}"
        yield GitServer(url, certificate.file, repositories)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    root: Path

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

    def _answer(self, body: bytes) -> None:
        match self.path.split("/")[1]:
            case "locked":
                self._say(401, {"WWW-Authenticate": 'Basic realm="x"'})
            case name if name.startswith("secret") and not self._is_let_in():
                self._say(401, {"WWW-Authenticate": 'Basic realm="x"'})
            case "private":
                rest = self.path.removeprefix("/private")
                self._say(302, {"Location": f"https://10.255.255.1{rest}"})
            case "elsewhere":
                rest = self.path.removeprefix("/elsewhere")
                port = self.connection.getsockname()[1]
                host = f"localhost:{port}"
                self._say(302, {"Location": f"https://{host}{rest}"})
            case "plain":
                self._say(302, {"Location": f"http://127.0.0.1{self.path}"})
            case "slow":
                time.sleep(3)
                self._say(404, {})
            case _:
                self._serve(body)

    def _is_let_in(self) -> bool:
        """With a token in place of a password, whoever has it."""
        kind, _, packed = self.headers.get("Authorization", "").partition(" ")
        return kind == "Basic" and base64.b64decode(packed).decode().endswith(f":{TOKEN}")

    def _serve(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        environment = {
            **_GIT,
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(
            _BACKEND, input=body, env=environment, capture_output=True, check=False, cwd=os.sep
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        status = int(headers.pop("Status", "200").split()[0])
        self._say(status, headers, content)

    def _say(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its own name
        """Say nothing: the tests read what git says."""

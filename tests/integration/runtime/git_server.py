"""A git server on loopback over https, with the redirects and refusals that clones must survive."""

import os
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

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
            (folder / path).write_bytes(content)
        for command in (
            "git init --quiet --initial-branch=main",
            *commands,
            "git add --all",
            "git commit --quiet --message first",
        ):
            subprocess.run(["sh", "-c", command], cwd=folder, env=_GIT, check=True)
        return f"{self.url}/{name}/.git"


@contextmanager
def git_server(folder: Path) -> Iterator[GitServer]:
    repositories = folder / "repositories"
    repositories.mkdir()
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    class Handler(_Handler):
        root = repositories

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False  # a client that keeps its connection is not waited for
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        url = f"https://127.0.0.1:{server.server_address[1]}"
        yield GitServer(url, certificate, repositories)
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
            case "private":
                rest = self.path.removeprefix("/private")
                self._say(302, {"Location": f"https://10.255.255.1{rest}"})
            case "plain":
                self._say(302, {"Location": f"http://127.0.0.1{self.path}"})
            case "slow":
                time.sleep(3)
                self._say(404, {})
            case _:
                self._serve(body)

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

"""How many functions of Sandyard four requests pass: `python -m benchmarks.hops [--list]`.

A real server runs under `sys.setprofile`. A function counts if every one of several equal requests
enters it, in its task, in tasks that it starts, or in threads that work for it; lambdas and
comprehensions do not count. Needs nothing but the commands and the API of a release, so that any
two releases can be compared: copy this file into the other checkout.
"""

import argparse
import contextvars
import itertools
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx

_HEADER = "x-hops"
_STOP = "stop"
_WARM_UPS = 2
_SAMPLES = 5
_START_SEC = 120
_FRAME = ("kit/", "entrypoints/")
"""What every request passes, whatever it asks for."""
_PASSWORD = "correct horse battery"
_SETTINGS = {
    "BROKER_API_TOKEN": "track-token-of-the-tests",
    "BROKER_ADMIN_TOKEN": "admin-token-of-the-tests",
    "WRITES_PER_ACCOUNT": "12000/minute",
    "QUOTA_SANDBOXES": "100",
    "QUOTA_CPU": "200",
    "QUOTA_MEMORY_GB": "200",
}

Send = Callable[[str], httpx.Response]
"""Makes one request, with the value of the header that marks it."""


class _Recorder:
    """Runs in the server: writes each function that a marked request enters, once, to a file."""

    def __init__(self, file: Path) -> None:
        import sandyard

        self._root = str(Path(sandyard.__file__).parent)
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._mark: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="")
        self._active = ""
        self._entered: set[CodeType] = set()

    def install(self) -> None:
        os.register_at_fork(after_in_child=lambda: sys.setprofile(None))
        ThreadPoolExecutor.submit = _submit_in_context  # type: ignore[assignment, method-assign]
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(self._root):
            return
        self._find_mark(frame)
        if not self._active or self._mark.get() != self._active:
            return
        if code not in self._entered and not code.co_name.startswith("<"):
            self._entered.add(code)
            file = code.co_filename.removeprefix(f"{self._root}/")
            os.write(self._file, f"{self._active}\t{file} {code.co_qualname}\n".encode())

    def _find_mark(self, frame: FrameType) -> None:
        """A request is recognised by its ASGI scope where it enters the application."""
        if self._mark.get() or frame.f_code.co_name != "__call__":
            return
        scope = frame.f_locals.get("scope")
        headers = scope.get("headers", ()) if isinstance(scope, dict) else ()
        for name, value in headers:
            if name == _HEADER.encode():
                self._mark.set(value.decode())
                self._active = "" if value == _STOP.encode() else value.decode()
                self._entered.clear()


_submit = ThreadPoolExecutor.submit


def _submit_in_context(
    executor: ThreadPoolExecutor, function: Callable[..., Any], /, *arguments: Any, **named: Any
) -> Future[Any]:
    """What a request has done in a thread belongs to the request."""
    run = contextvars.copy_context().run
    return _submit(executor, run, function, *arguments, **named)


def _serve_recorded(file: Path, arguments: list[str]) -> None:
    sys.argv = ["sandyard", *arguments]
    _Recorder(file).install()
    runpy.run_module("sandyard", run_name="__main__")


class _Server:
    """A recorded server, and an account of it."""

    def __init__(self, url: str, recorded: Path) -> None:
        self.client = httpx.Client(base_url=url, timeout=60)
        self._recorded = recorded
        self._names = itertools.count(1)

    def log_in(self) -> None:
        login = {"login": "hops@example.com", "password": _PASSWORD}
        token = self.ok("POST", "/api/v1/auth/login", json=login).json()["access_token"]
        self.client.headers["Authorization"] = f"Bearer {token}"

    def ok(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self.client.request(method, path, **options)
        if not answer.is_success:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer

    def functions_of(self, send: Send) -> list[str]:
        """What all samples of a request enter, in the order of one of them."""
        samples = [self._sample(send) for _ in range(_WARM_UPS + _SAMPLES)][_WARM_UPS:]
        everywhere = set(samples[0]).intersection(*samples[1:])
        return [function for function in samples[0] if function in everywhere]

    def _sample(self, send: Send) -> list[str]:
        mark = f"request-{next(self._names)}"
        send(mark)
        self.ok("GET", "/healthz", headers={_HEADER: _STOP})
        lines = [line.split("\t") for line in self._recorded.read_text().splitlines()]
        return [function for name, function in lines if name == mark]


@contextmanager
def _server(folder: Path) -> Iterator[_Server]:
    port, recorded, log = _free_port(), folder / "recorded", folder / "server.log"
    data_dir = folder / "data"
    serve = ["serve", "--host", "127.0.0.1", "--port", str(port), "--data-dir", str(data_dir)]
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")} | _SETTINGS
    command = [sys.executable, "-P", __file__, "--record", str(recorded), *serve]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        server = _Server(f"http://127.0.0.1:{port}", recorded)
        _wait_until_ready(server, process)
        _create_admin(data_dir, environment)
        server.log_in()
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait_until_ready(server: _Server, process: subprocess.Popen[bytes]) -> None:
    """Until all parts serve and the first sync has filled the pool."""
    admin = {"Authorization": f"Bearer {_SETTINGS['BROKER_ADMIN_TOKEN']}"}
    deadline = time.monotonic() + _START_SEC
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(httpx.TransportError):
            stats = server.client.get("/v1/admin/stats", headers=admin)
            if stats.is_success and stats.json()["available"]:
                server.client.get("/openapi.json")
                return
        time.sleep(0.1)
    raise RuntimeError("the server did not become ready")


def _create_admin(data_dir: Path, environment: dict[str, str]) -> None:
    options = ["--email", "hops@example.com", "--username", "hops", "--password-stdin"]
    subprocess.run(
        [sys.executable, "-m", "sandyard", "users", "create-admin", *options],
        env=environment | {"DATA_DIR": str(data_dir)},
        input=f"{_PASSWORD}\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def _allocate(server: _Server) -> Send:
    def send(mark: str) -> httpx.Response:
        headers = {
            "Authorization": "Bearer track-token-of-the-tests",
            "X-Track-ID": mark,
            _HEADER: mark,
        }
        return server.ok("POST", "/v1/allocate", headers=headers)

    return send


def _create_in_e2b(server: _Server) -> Send:
    body = {"name": "hops", "scope": "run", "format": "e2b"}
    key = server.ok("POST", "/api/v1/api-keys", json=body).json()["api_key"]

    def send(mark: str) -> httpx.Response:
        headers = {"X-API-Key": key, _HEADER: mark}
        order = {"templateID": "base", "timeout": 300}
        url = server.client.base_url.join("/e2b/sandboxes")
        return httpx.post(url, json=order, headers=headers, timeout=60).raise_for_status()

    return send


def _put_file(server: _Server) -> Send:
    templates = server.ok("GET", "/api/v1/templates", params={"q": "base"}).json()["templates"]
    [template] = [each["template_id"] for each in templates if each["name"] == "base"]
    body = {"name": "hops", "template_id": template}
    sandbox = server.ok("POST", "/api/v1/sandboxes", json=body).json()["sandbox_id"]
    path = f"/api/v1/sandboxes/{sandbox}"
    server.ok("POST", f"{path}/start")

    def send(mark: str) -> httpx.Response:
        options: dict[str, Any] = {"params": {"path": mark}, "headers": {_HEADER: mark}}
        return server.ok("PUT", f"{path}/files", content=b"x" * 1000, **options)

    return send


def _sync_preview(server: _Server) -> Send:
    project = server.ok("POST", "/api/v1/projects", json={"name": "hops"}).json()["project_id"]
    path = f"/api/v1/projects/{project}"

    def send(mark: str) -> httpx.Response:
        files = {"files": [{"path": "index.html", "content": mark}]}
        server.ok("PUT", f"{path}/files", json=files)
        return server.ok("POST", f"{path}/sync", headers={_HEADER: mark})

    return send


_REQUESTS: dict[str, Callable[[_Server], Send]] = {
    "allocate on SQLite": _allocate,
    "E2B create": _create_in_e2b,
    "PUT of a file": _put_file,
    "preview sync": _sync_preview,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hops", description=__doc__)
    parser.add_argument("--list", action="store_true", help="show the functions too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder)) as server:
        found = {name: server.functions_of(make(server)) for name, make in _REQUESTS.items()}
    print(f"{'request':<20} {'functions':>9} {'outside of kit and entrypoints':>32}")
    for name, functions in found.items():
        of_parts = [each for each in functions if not each.startswith(_FRAME)]
        print(f"{name:<20} {len(functions):>9} {len(of_parts):>32}")
        if options.list:
            print(*(f"    {function}" for function in functions), sep="\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        _serve_recorded(Path(sys.argv[2]), sys.argv[3:])
    else:
        main()

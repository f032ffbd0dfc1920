"""Real `sandyard` processes for the tests, each on a port and a data dir of its own."""

import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from sandyard.kit.free_ports import free_port
from tests.support.servers.certificates import Certificate
from tests.support.servers.fork_server import ForkedProcess, can_fork

START_SEC = 120
SECRETS = {
    "BROKER_API_TOKEN": "track-token-of-the-tests",
    "BROKER_ADMIN_TOKEN": "admin-token-of-the-tests",
    "TELEMETRY_ADMIN_TOKEN": "telemetry-token-of-the-tests",
    "API_KEY_PEPPER": "pepper",
    "JWT_SECRET": "the-signing-key-of-the-tests-which-is-long",
    "GATEWAY_SECRET": "the-other-signing-key-of-the-tests-is-long",
    "SECRETS_KEY": "the-encryption-key-of-the-tests-which-is-long",
}
"""What every server of the tests has."""


@dataclass
class ServerProcess:
    """A running `sandyard serve`; `log` is what it wrote to stderr."""

    process: subprocess.Popen[bytes]
    url: str
    data_dir: Path
    log: Path
    track_token: str
    admin_token: str
    verify: ssl.SSLContext | bool = True

    @property
    def track(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.track_token}"}

    @property
    def operator(self) -> dict[str, str]:
        """For Telemetry's operators."""
        return {"Authorization": "Bearer telemetry-token-of-the-tests"}

    @property
    def admin(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.admin_token}"}

    @property
    def tenants_pid(self) -> int:
        """The tenants' process, the only child of its keeper, the first of the main process."""
        return _child(_child(self.process.pid))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def _child(pid: int) -> int:
    """The oldest one."""
    child, *_ = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def wait_until_ready(
    url: str,
    process: subprocess.Popen[bytes],
    path: str = "/readyz",
    *,
    verify: ssl.SSLContext | bool = True,
) -> None:
    deadline = time.monotonic() + START_SEC
    with httpx.Client(timeout=2, verify=verify) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise AssertionError(f"the server ended with {process.returncode}")
            with suppress(httpx.TransportError):
                if client.get(url + path).status_code == 200:
                    return
            time.sleep(0.05)
    raise AssertionError("the server did not become ready")


def clean_environment(settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """What any program needs, and these settings."""
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "DRAIN_SEC": "0.1"}
    return clean | dict(settings or {})


def run_sandyard(
    *arguments: str, environment: Mapping[str, str] | None = None, log: Path
) -> subprocess.Popen[bytes]:
    """Start the command with nothing of ours in its environment but what is passed."""
    settings = clean_environment(environment)
    process = ForkedProcess if can_fork(settings) else subprocess.Popen
    with log.open("ab") as stderr:
        return process(
            [sys.executable, "-m", "sandyard", *arguments],
            env=settings,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )


def run_command(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    text: str | None = None,
    cwd: Path | None = None,
    timeout_sec: float = 120,
) -> subprocess.CompletedProcess[str]:
    """A `sandyard` command with this text as its input, until it has ended."""
    words = [sys.executable, "-m", "sandyard", *arguments]
    with ForkedProcess(
        words,
        env=clean_environment(environment),
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            output, errors = process.communicate(text, timeout=timeout_sec)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


@contextmanager
def sandyard_serve(
    data_dir: Path,
    *,
    environment: Mapping[str, str] | None = None,
    port: int | None = None,
    arguments: tuple[str, ...] = (),
    ready_path: str = "/readyz",
    host: str = "127.0.0.1",
    certificate: Certificate | None = None,
) -> Iterator[ServerProcess]:
    """`sandyard serve`, from ready to stopped; over TLS with this certificate."""
    port = port or free_port()
    data_dir.mkdir(parents=True, exist_ok=True)
    log = data_dir.with_suffix(".log")
    process = run_sandyard(
        *("serve", "--host", host, "--port", str(port), "--data-dir", str(data_dir)),
        *(_tls_arguments(certificate) if certificate else ()),
        *arguments,
        environment=SECRETS | dict(environment or {}),
        log=log,
    )
    url = f"{'https' if certificate else 'http'}://{host}:{port}"
    trusted: ssl.SSLContext | bool = certificate.trusting() if certificate else True
    try:
        wait_until_ready(url, process, ready_path, verify=trusted)
        yield ServerProcess(
            process,
            url,
            data_dir,
            log,
            "track-token-of-the-tests",
            "admin-token-of-the-tests",
            trusted,
        )
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        assert process.stdout is not None
        process.stdout.close()


def _tls_arguments(certificate: Certificate) -> tuple[str, ...]:
    return ("--tls-cert", str(certificate.file), "--tls-key", str(certificate.key))


def verify(data_dir: Path, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The exit code of `sandyard verify`, and what it says."""
    done = run_command("verify", "--data-dir", str(data_dir), environment=environment)
    return done.returncode, done.stdout + done.stderr


@contextmanager
def csp_simulator(folder: Path, *arguments: str) -> Iterator[str]:
    """`sandyard csp-sim`; gives its URL."""
    port = free_port()
    process = run_sandyard(
        "csp-sim", "--port", str(port), *arguments, log=folder / f"csp-sim-{port}.log"
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(url, process, "/_sim")
        yield url
    finally:
        process.terminate()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


def wait_for_pool(server: ServerProcess) -> None:
    """Until the first sync has filled it."""
    deadline = time.monotonic() + START_SEC
    while True:
        stats = httpx.get(f"{server.url}/v1/admin/stats", headers=server.admin, timeout=60)
        if stats.raise_for_status().json()["available"]:
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)

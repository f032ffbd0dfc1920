"""HTTPS by the server itself, and a certificate that is renewed under it."""

import asyncio
import signal
import socket
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from sandyard.kit.free_ports import free_port
from tests.support.servers.processes import run_sandyard, wait_until_ready

CALLERS = 4
TOKENS = {
    "PARTS": "broker",
    "BROKER_API_TOKEN": "track-token-of-the-tests",
    "BROKER_ADMIN_TOKEN": "admin-token-of-the-tests",
}


def make_certificate(folder: Path, name: str) -> None:
    """Over the files that a server uses, as a renewal does."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext"),
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )


@dataclass
class HttpsServer:
    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def certificate(self) -> str:
        """What a new connection is shown."""
        return ssl.get_server_certificate(("127.0.0.1", self.port))

    def eventually_shows(self, certificate: str) -> None:
        """And no other: to so many connections it would have been shown."""
        deadline = time.monotonic() + 60
        while {self.certificate() for _ in range(10)} != {certificate}:
            assert time.monotonic() < deadline

    def eventually_says(self, text: str) -> None:
        deadline = time.monotonic() + 60
        while text not in self.log.read_text():
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)


@contextmanager
def serving_https(folder: Path) -> Iterator[HttpsServer]:
    port, log = free_port(), folder / "log"
    files = ("--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"))
    process = run_sandyard(
        *("serve", "--port", str(port), "--data-dir", str(folder / "data"), *files),
        *("--hsts-sec", "600"),
        environment=TOKENS,
        log=log,
    )
    try:
        wait_until_ready(f"https://127.0.0.1:{port}", process, verify=anybody())
        yield HttpsServer(process, port, log)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def anybody() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def call_until(url: str, done: asyncio.Event) -> Counter[str]:
    """Calls over connections that stay open as long as the server lets them."""
    seen: Counter[str] = Counter()

    async def call() -> None:
        async with httpx.AsyncClient(base_url=url, verify=anybody(), timeout=60) as http:
            while not done.is_set():
                answer = await http.get("/healthz")
                assert answer.headers["strict-transport-security"] == "max-age=600"
                seen[str(answer.status_code)] += 1

    await asyncio.gather(*(call() for _ in range(CALLERS)))
    return seen


async def test_a_certificate_is_renewed_on_sighup_and_calls_go_on(tmp_path: Path) -> None:
    make_certificate(tmp_path, "first")
    with serving_https(tmp_path) as server:
        first = await asyncio.to_thread(server.certificate)
        held = socket.create_connection(("127.0.0.1", server.port))
        with anybody().wrap_socket(held) as connection:
            done = asyncio.Event()
            calls = asyncio.create_task(call_until(f"https://127.0.0.1:{server.port}", done))
            make_certificate(tmp_path, "second")
            server.process.send_signal(signal.SIGHUP)
            await asyncio.to_thread(server.eventually_says, "the certificate was reloaded")
            assert connection.getpeercert(binary_form=True) == ssl.PEM_cert_to_DER_cert(first)
        done.set()
        assert set(await calls) == {"200"}
        second = (tmp_path / "cert.pem").read_text()
        await asyncio.to_thread(server.eventually_shows, second)

        (tmp_path / "key.pem").write_text("no key")
        server.process.send_signal(signal.SIGHUP)
        await asyncio.to_thread(server.eventually_says, "the certificate was not reloaded")
        await asyncio.to_thread(server.eventually_shows, second)
        assert server.process.poll() is None

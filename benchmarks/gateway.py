"""The gateway beside nginx as a plain reverse proxy, both before the same nginx with files."""

import getpass
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.load import INSTALL_WRK, has_wrk
from benchmarks.report import Figure, Measured, Say
from sandyard.kit.free_ports import free_port

_ROUNDS = 5
_SECONDS = 3
_CONNECTIONS = 4
_LARGE, _SMALL = "10m", "1k"
_SIZES = {_LARGE: 10_000_000, _SMALL: 1_000}
_LEAST = 0.5
_NGINX = """
user {user}; worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{port}; {location} }}
}}
"""


@dataclass(frozen=True, slots=True)
class _Proxy:
    port: int
    host: str


def measure(folder: Path, say: Say) -> Measured:
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None or not has_wrk():
        why = INSTALL_WRK if nginx else "nginx is missing: apt-get install nginx-light"
        return Measured([Figure.not_measured("gateway ÷ nginx", why)])
    files = folder / "files"
    files.mkdir()
    for name, size in _SIZES.items():
        (files / name).write_bytes(bytes(size))
    with (
        _nginx(nginx, folder / "origin", f"root {files};") as origin,
        _nginx(nginx, folder / "proxy", f"location / {{ proxy_pass {_url(origin)}; }}") as proxy,
        _gateway(origin) as gateway,
    ):
        return _compare(_Proxy(proxy, f"127.0.0.1:{proxy}"), gateway, say)


def _compare(nginx: _Proxy, gateway: _Proxy, say: Say) -> Measured:
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in _SIZES}
    for number in range(1, _ROUNDS + 1):
        say(f"gateway: round {number} of {_ROUNDS}")
        for name, pairs in rates.items():
            pairs.append((_rate(gateway, name), _rate(nginx, name)))
    ratios = {name: [ours / theirs for ours, theirs in pairs] for name, pairs in rates.items()}
    ours = {name: median(ours for ours, _ in pairs) for name, pairs in rates.items()}
    megabytes = ours[_LARGE] * _SIZES[_LARGE] / 1e6
    return Measured(
        [
            Figure.at_least("gateway ÷ nginx as proxy, 10 MB bodies", ratios[_LARGE], _LEAST),
            Figure("gateway, 10 MB bodies", f"{megabytes:,.0f} MB/s"),
            Figure("gateway ÷ nginx as proxy, 1 kB pages", f"{median(ratios[_SMALL]):.2f}"),
            Figure("gateway, 1 kB pages", f"{ours[_SMALL]:,.0f}/s"),
        ]
    )


def _rate(proxy: _Proxy, name: str) -> float:
    """Answers per second."""
    command = ["wrk", "-t1", f"-c{_CONNECTIONS}", f"-d{_SECONDS}s", "-H", f"Host: {proxy.host}"]
    said = subprocess.run(
        [*command, f"{_url(proxy.port)}/{name}"],
        check=True,
        capture_output=True,
        text=True,
        timeout=_SECONDS + 30,
    ).stdout
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    if rate is None or "Non-2xx" in said or "Socket errors" in said:
        raise RuntimeError(f"{proxy.host} did not answer every request:\n{said}")
    return float(rate[1])


@contextmanager
def _nginx(command: str, folder: Path, location: str) -> Iterator[int]:
    folder.mkdir()
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(
        _NGINX.format(user=getpass.getuser(), folder=folder, port=port, location=location)
    )
    process = subprocess.Popen([command, "-c", config], stderr=subprocess.DEVNULL)
    try:
        _wait_until_open(port)
        yield port
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def _gateway(origin: int) -> Iterator[_Proxy]:
    command = [sys.executable, "-m", "benchmarks.gateway_server", str(origin)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port, host = (process.stdout or sys.stdin).readline().split()
        yield _Proxy(int(port), host)
    finally:
        process.terminate()
        process.wait(20)


def _wait_until_open(port: int) -> None:
    options = [
        "-s",
        "-o",
        "/dev/null",
        "--retry",
        "50",
        "--retry-connrefused",
        "--retry-delay",
        "1",
    ]
    subprocess.run(["curl", *options, _url(port)], check=True, timeout=60)


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"

"""SSH into a sandbox beside Debian's sshd on this machine: a command after the login, and scp."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx

from benchmarks.report import Figure, Measured, Say
from sandyard.kit.free_ports import free_port
from tests.support.servers.processes import sandyard_serve
from tests.support.servers.users import signed_up

_COMMANDS = 100
_COMMAND_MS = 50
_MEGABYTES = 200
_ROUNDS = 3
_LEAST = 0.4
_SSHD = "/usr/sbin/sshd"


@dataclass(frozen=True, slots=True)
class _Target:
    user: str
    port: int
    key: Path
    control: Path

    def options(self) -> list[str]:
        known = (
            *("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"),
            *("IdentitiesOnly=yes", f"IdentityFile={self.key}", f"ControlPath={self.control}"),
        )
        return ["-F", "none", *(word for each in known for word in ("-o", each))]

    def ssh(self, *words: str) -> list[str]:
        return ["ssh", *self.options(), "-p", str(self.port), *words]

    def scp(self, source: str, target: str) -> list[str]:
        """Over a connection of its own; `there:` stands for the other side."""
        names = [each.replace("there:", f"{self.user}@127.0.0.1:") for each in (source, target)]
        options = [*self.options(), "-o", "ControlPath=none"]
        return ["scp", *options, "-P", str(self.port), *names]


def measure(folder: Path, say: Say) -> Measured:
    key = folder / "key"
    _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)])
    port = free_port()
    environment = {"SSH_PORT": str(port), "MAX_UPLOAD_BYTES": "1000000000"}
    with sandyard_serve(folder / "data", environment=environment) as server:
        ann = signed_up(server, "ann", mail=1)
        public = key.with_suffix(".pub").read_text()
        ann.call("POST", "/ssh-keys", {"name": "bench", "public_key": public}, expect=201)
        with httpx.Client(
            base_url=f"{server.url}/api/v1", headers=ann.headers, timeout=60
        ) as account:
            found = account.get("/templates?visibility=official&q=static").json()["templates"]
            body = {"name": "box", "template_id": found[0]["template_id"]}
            box = account.post("/sandboxes", json=body).raise_for_status().json()["sandbox_id"]
            account.post(f"/sandboxes/{box}/start").raise_for_status()
            ours = _Target(box, port, key, folder / "ours.sock")
            say(f"ssh: {_COMMANDS} commands")
            with _logged_in(ours):
                trips = [_timed(ours.ssh("x@127.0.0.1", "true")) for _ in range(_COMMANDS)]
            figures = [
                Figure.below(
                    "SSH command after login, p50", median(trips) * 1000, _COMMAND_MS, "ms"
                ),
                *_transfers(ours, folder, say),
            ]
    return Measured(figures, rows=f"{_MEGABYTES} MB")


def _transfers(ours: _Target, folder: Path, say: Say) -> Iterator[Figure]:
    if shutil.which(_SSHD) is None:
        yield Figure.not_measured("scp ÷ sshd's", "openssh-server is missing")
        return
    file, back = folder / "file", folder / "back"
    file.write_bytes(os.urandom(_MEGABYTES * 1_000_000))
    up: list[tuple[float, float]] = []
    down: list[tuple[float, float]] = []
    with _sshd(ours.key, folder) as theirs:
        for number in range(1, _ROUNDS + 1):
            say(f"ssh: {_MEGABYTES} MB up and down, round {number} of {_ROUNDS}")
            up.append(_both(ours, theirs, lambda to, name: to.scp(str(file), f"there:{name}")))
            down.append(_both(ours, theirs, lambda to, name: to.scp(f"there:{name}", str(back))))
    for label, times in (("up", up), ("down", down)):
        ratios = [theirs_sec / ours_sec for ours_sec, theirs_sec in times]
        yield Figure.at_least(f"scp {label} ÷ that of sshd", ratios, _LEAST)
        rates = [median(each) for each in zip(*times, strict=True)]
        ours_rate, theirs_rate = (_MEGABYTES / each for each in rates)
        yield Figure(f"  scp {label}", f"{ours_rate:.0f} MB/s, sshd {theirs_rate:.0f} MB/s")


def _both(
    ours: _Target, theirs: _Target, words: Callable[[_Target, str], list[str]]
) -> tuple[float, float]:
    """One after the other; sshd's file lies in a folder of its own."""
    return _timed(words(ours, "sent")), _timed(words(theirs, str(theirs.control.parent / "sent")))


@contextmanager
def _logged_in(target: _Target) -> Iterator[None]:
    """A master connection, which the other calls share."""
    _run(target.ssh("-M", "-f", "-N", f"{target.user}@127.0.0.1"))
    try:
        yield
    finally:
        _run(target.ssh("-O", "exit", "x@127.0.0.1"))


@contextmanager
def _sshd(key: Path, folder: Path) -> Iterator[_Target]:
    port, home = free_port(), folder / "sshd"
    home.mkdir()
    Path("/run/sshd").mkdir(exist_ok=True)  # what it demands
    _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / "host")])
    (home / "authorized").write_text(key.with_suffix(".pub").read_text())
    (home / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {home}/host\nStrictModes no\n"
        f"AuthorizedKeysFile {home}/authorized\nPermitRootLogin yes\nUsePAM no\nPidFile none\n"
        "Subsystem sftp internal-sftp\n"
    )
    server = subprocess.Popen([_SSHD, "-D", "-e", "-f", str(home / "config")])
    target = _Target(os.environ.get("USER", "root"), port, key, home / "theirs.sock")
    try:
        deadline = time.monotonic() + 30
        while subprocess.run(
            target.ssh(f"{target.user}@127.0.0.1", "true"), check=False
        ).returncode:
            if time.monotonic() > deadline:
                raise TimeoutError("sshd does not answer")
            time.sleep(0.1)
        yield target
    finally:
        server.terminate()
        server.wait()


def _timed(words: list[str]) -> float:
    began = time.perf_counter()
    _run(words)
    return time.perf_counter() - began


def _run(words: list[str]) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)

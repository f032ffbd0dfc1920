"""Builds the image as far as a machine without Docker allows, and starts what is in it.

The base is a Debian made by `mmdebstrap`; `buildah` builds without a daemon; `bubblewrap` starts
the command as the image says: its user, its environment, its root read-only, a network of its own.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
BASE = "localhost/sandyard-test-base"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_BUILD_SEC = 900
_START_SEC = 60


def run(*command: str | Path, timeout: float = _BUILD_SEC) -> str:
    done = subprocess.run(
        [str(each) for each in command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout.strip()


@dataclass(frozen=True)
class Image:
    """A built image, with its file system mounted."""

    config: dict[str, Any]
    root: Path

    @property
    def environment(self) -> dict[str, str]:
        return dict(each.split("=", 1) for each in self.config["Env"])

    @property
    def command(self) -> list[str]:
        return [*self.config["Entrypoint"], *self.config["Cmd"]]


class Builder:
    """`buildah` with a store of its own in a folder."""

    def __init__(self, folder: Path) -> None:
        self._buildah = ("buildah", "--root", folder / "store", "--runroot", folder / "run")

    def make_base(self, archive: Path) -> None:
        container = run(*self._buildah, "from", "scratch")
        run(*self._buildah, "add", "--quiet", container, archive, "/")
        run(*self._buildah, "commit", "--quiet", "--rm", container, BASE)

    def build(self, name: str) -> None:
        """In Docker's format: the other has no health check."""
        run(
            *(*self._buildah, "build", "--no-cache", "--pull-never", "--isolation", "chroot"),
            *("--format", "docker", "--timestamp", "0", "--build-arg", f"BASE={BASE}"),
            *("--file", "deploy/container/Dockerfile", "--tag", name, "."),
        )

    @contextmanager
    def opened(self, name: str) -> Iterator[Image]:
        about = json.loads(run(*self._buildah, "inspect", "--type", "image", name))
        container = run(*self._buildah, "from", "--pull-never", name)
        root = Path(run(*self._buildah, "mount", container))
        try:
            yield Image(about["Docker"]["config"], root)
        finally:
            run(*self._buildah, "umount", container)
            run(*self._buildah, "rm", container)


def make_base_archive(archive: Path) -> None:
    """A small Debian with Python that trusts the authorities which this machine trusts."""
    if archive.exists():
        return
    with tempfile.NamedTemporaryFile(dir=archive.parent, suffix=".tar") as made:
        run(
            *("mmdebstrap", "--quiet", "--variant=minbase", "--format=tar"),
            "--include=python3,python3-venv,ca-certificates",
            f"--customize-hook=copy-in {_CERTIFICATES} /etc/ssl/certs/",
            *("bookworm", made.name),
        )
        os.link(made.name, archive)


@dataclass(frozen=True)
class Container:
    """The image's command under way; its processes, and what can be run beside them."""

    starter: psutil.Process

    @property
    def processes(self) -> list[psutil.Process]:
        return [each for each in self.starter.children(recursive=True) if each.name() != "bwrap"]

    def run(self, *command: str) -> tuple[int, str]:
        """Inside, as the image's user."""
        pid = str(self.processes[0].pid)
        done = subprocess.run(
            ["nsenter", "--target", pid, "--mount", "--net", "--pid", *_as_user(), *command],
            capture_output=True,
            text=True,
            timeout=60,
            env=_environment_of(self.processes[0]),
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def wait_until_healthy(self, check: Sequence[str]) -> None:
        deadline = time.monotonic() + _START_SEC
        while self.run(*check)[0]:
            assert time.monotonic() < deadline, self.run(*check)[1]
            time.sleep(0.2)


def _as_user() -> list[str]:
    return [
        *("setpriv", "--reuid", "10001", "--regid", "10001", "--clear-groups"),
        *("--inh-caps", "-all", "--bounding-set", "-all", "--no-new-privs"),
    ]


def _environment_of(process: psutil.Process) -> dict[str, str]:
    return dict(process.environ())


@contextmanager
def started(image: Image, data_dir: Path, log: Path) -> Iterator[Container]:
    os.chown(data_dir, 10001, 10001)
    settings = [part for item in image.environment.items() for part in ("--setenv", *item)]
    command = [
        *("bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
        *("--die-with-parent", "--ro-bind", str(image.root), "/", "--proc", "/proc"),
        *("--dev", "/dev", "--tmpfs", "/tmp", "--bind", str(data_dir), "/data"),  # noqa: S108
        *("--clearenv", *settings, "--chdir", "/", *_as_user(), *image.command),
    ]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as bwrap:
        container = Container(psutil.Process(bwrap.pid))
        try:
            while not container.processes:
                assert bwrap.poll() is None, log.read_text()
                time.sleep(0.05)
            yield container
        finally:
            for process in container.processes[:1]:
                process.terminate()
            bwrap.wait(60)

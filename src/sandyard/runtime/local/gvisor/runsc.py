"""gVisor's program `runsc`: whether the host has one that is new enough."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache

from sandyard.runtime.errors import IsolationMissingError
from sandyard.runtime.model import GvisorPlatform

OLDEST = 20240729
"""The first of Debian's with the platform systrap, which needs no KVM."""
_VERSION = re.compile(r"\b(20\d{6})\b")
_VERSION_SEC = 10
_TRY_SEC = 60
_TRUE = ("do", "-quiet", "/bin/true")
_OTHER: Mapping[GvisorPlatform, str] = {
    "systrap": "",
    "kvm": " Set SANDBOX_GVISOR_PLATFORM=systrap, or let the server use /dev/kvm.",
}
_HOW = (
    "Install runsc 20240729 or newer (on Debian 12: add bookworm-backports to apt's sources, then "
    "`apt-get install -t bookworm-backports runsc`)"
)


def runsc() -> str | None:
    return shutil.which("runsc", path=os.environ.get("PATH", os.defpath))


def require_runsc() -> str:
    """Its path. Raises IsolationMissingError."""
    if (program := runsc()) is None:
        raise IsolationMissingError(f"gVisor is missing. {_HOW}.")
    try:
        found = _version(program)
    except (OSError, subprocess.SubprocessError) as error:
        raise IsolationMissingError(f"{program} does not run: {error}. {_HOW}.") from error
    if found < OLDEST:
        raise IsolationMissingError(f"gVisor's runsc {found} is too old. {_HOW}.")
    return program


def check_gvisor(on: GvisorPlatform) -> None:
    """Return if runsc runs a program here. Raises IsolationMissingError."""
    _try(require_runsc(), on)


def options_on(on: GvisorPlatform) -> tuple[str, ...]:
    return f"--platform={on}", "--ignore-cgroups"


@cache
def runsc_version() -> int:
    """Its date. Raises IsolationMissingError."""
    return _version(require_runsc())


@cache
def _try(program: str, on: GvisorPlatform) -> None:
    with tempfile.TemporaryDirectory() as state:
        command = [program, "--root", state, *options_on(on), "--network=none", *_TRUE]
        try:
            done = subprocess.run(  # noqa: S603
                command, capture_output=True, text=True, timeout=_TRY_SEC, check=False
            )
        except subprocess.SubprocessError as error:
            raise IsolationMissingError(
                f"gVisor does not run here on {on}: {error}.{_OTHER[on]}"
            ) from error
    if done.returncode:
        reason = done.stderr.strip()[-300:]
        raise IsolationMissingError(
            f"gVisor does not run here on {on}: {reason}.{_OTHER[on]}", reason=reason
        )


def _version(program: str) -> int:
    """Its date; 0 if it names none."""
    done = subprocess.run(  # noqa: S603
        [program, "--version"], capture_output=True, text=True, timeout=_VERSION_SEC, check=False
    )
    found = _VERSION.search(done.stdout)
    return int(found.group(1)) if found else 0

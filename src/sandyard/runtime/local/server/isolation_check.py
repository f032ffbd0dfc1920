"""Checks whether the host can isolate programs as requested."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from sandyard.runtime.errors import IsolationMissingError
from sandyard.runtime.local.gvisor.runsc import check_gvisor
from sandyard.runtime.local.jail.isolation import PATH, Jail, bubblewrap
from sandyard.runtime.local.jail.mount_namespace import MountNamespace
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import IsolationMode

_PROBE_SEC = 10
_WORKING: set[tuple[str, int | None]] = set()
"""Programs found to work, and under which uid; each is tested once."""


def check_isolation(mode: IsolationMode, options: LocalOptions) -> None:
    """Return if a command runs in isolation, or raise IsolationMissingError. gVisor's machines are
    in a jail of bubblewrap."""
    uid = options.uids[0] if os.geteuid() == 0 else None
    if not Path("/proc/self/stat").exists():
        raise IsolationMissingError("Sandboxes run on Linux alone.")
    if mode == "none":
        return
    if mode == "gvisor":
        if uid is None:
            raise IsolationMissingError("gVisor needs a server that is root.")
        check_gvisor(options.gvisor_platform)
    if (program := bubblewrap()) is None:
        raise IsolationMissingError
    if (program, uid) in _WORKING:
        return
    try:
        with ThreadPoolExecutor(1) as thread:  # of its own: it changes its mounts
            done = thread.submit(_probe, uid).result()
    except (OSError, subprocess.SubprocessError) as error:
        raise IsolationMissingError(reason=str(error)) from error
    if done.returncode:
        stderr = done.stderr.decode(errors="replace").strip()[-300:]
        raise IsolationMissingError(
            "bubblewrap can't isolate programs here: "
            f"{stderr}. Allow user namespaces and use bubblewrap 0.8 or later, or set "
            "SANDBOX_ISOLATION=none.",
            reason=stderr,
        )
    _WORKING.add((program, uid))


def _probe(uid: int | None) -> "subprocess.CompletedProcess[bytes]":
    """As a supervisor does it; any folder that everyone may enter serves as a workspace."""
    mounts = None if uid is None else MountNamespace(in_use=())
    wrapped = Jail(Path("/usr"), 4096, 4096, uid=uid, mounts=mounts).wrap(["/bin/true"])
    try:
        return subprocess.run(  # noqa: S603
            wrapped.command,
            env={},
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
            pass_fds=wrapped.descriptors,
            capture_output=True,
            timeout=_PROBE_SEC,
            check=False,
        )
    finally:
        wrapped.close()


def missing_for_sandboxes(options: LocalOptions) -> Sequence[str]:
    """A line for each problem that keeps sandboxes from starting here."""
    lines = [f"Sandboxes can't start. {line}" for line in missing_isolation(options)]
    if shutil.which("git", path=PATH) is None:
        lines.append("Sandboxes can't start from templates: git is missing. Install git.")
    return lines


def missing_for_previews(options: LocalOptions) -> Sequence[str]:
    return [f"Previews can't start. {line}" for line in missing_isolation(options)]


@cache
def missing_isolation(options: LocalOptions) -> Sequence[str]:
    """Why nothing can be isolated here, if so."""
    try:
        check_isolation(options.isolation, options)
    except IsolationMissingError as error:
        return [error.message]
    return []

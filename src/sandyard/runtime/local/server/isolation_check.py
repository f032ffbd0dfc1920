"""Checks whether the host can isolate programs as requested."""

import subprocess
from pathlib import Path

from sandyard.runtime.errors import IsolationMissingError
from sandyard.runtime.local.jail.bubblewrap import Jail, bubblewrap
from sandyard.runtime.local.records.run_folder import IsolationMode

_PROBE_SEC = 10
_WORKING: set[tuple[str, int | None]] = set()
"""Programs found to work, and under which uid; each is tested once."""


def check_isolation(mode: IsolationMode, *, uid: int | None) -> None:
    """Return if a command runs in isolation, or raise IsolationMissingError."""
    if mode == "none":
        return
    if (program := bubblewrap()) is None:
        raise IsolationMissingError
    if (program, uid) in _WORKING:
        return
    # Any folder that everyone may enter serves as a workspace.
    jail = Jail(Path("/usr"), 4096, 4096, uid=uid)
    probe = jail.wrap(["/bin/true"], environment={})
    try:
        done = subprocess.run(  # noqa: S603
            probe.command,
            env={},
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
            pass_fds=probe.descriptors,
            capture_output=True,
            timeout=_PROBE_SEC,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise IsolationMissingError(reason=str(error)) from error
    finally:
        probe.close()
    if done.returncode:
        stderr = done.stderr.decode(errors="replace").strip()[-300:]
        raise IsolationMissingError(
            "bubblewrap can't isolate programs here: "
            f"{stderr}. Allow user namespaces and use bubblewrap 0.8 or later, or set "
            "SANDBOX_ISOLATION=none.",
            reason=stderr,
        )
    _WORKING.add((program, uid))

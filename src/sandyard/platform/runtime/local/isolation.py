"""Whether this machine can isolate programs as was asked for."""

import subprocess
import sys
from pathlib import Path

from sandyard.platform.runtime.errors import IsolationMissingError
from sandyard.platform.runtime.local.jail import Jail, bubblewrap, system_python
from sandyard.platform.runtime.local.records import Isolation

_PROBE_SEC = 10


def check_isolation(isolation: Isolation, *, uid: int | None) -> None:
    """Return if a command runs inside the walls, or raise IsolationMissingError."""
    if isolation == "none":
        return
    if bubblewrap() is None:
        raise IsolationMissingError
    # Any folder that everybody may enter will do as a workspace.
    jail = Jail(Path("/usr"), python_for(isolation), 4096, 4096, uid=uid)
    probe = jail.enclose(["/bin/true"], environment={})
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
        said = done.stderr.decode(errors="replace").strip()[-300:]
        raise IsolationMissingError(
            "bubblewrap can't isolate programs here: "
            f"{said}. Allow user namespaces and use bubblewrap 0.8 or later, or set "
            "SANDBOX_ISOLATION=none.",
            reason=said,
        )


def python_for(isolation: Isolation) -> str:
    """The Python that runs the relay beside the program."""
    if isolation == "none":
        return sys.executable
    python = system_python()
    if python is None:
        raise IsolationMissingError(
            "The sandbox needs a Python under /usr: install python3, or set SANDBOX_ISOLATION=none."
        )
    return python

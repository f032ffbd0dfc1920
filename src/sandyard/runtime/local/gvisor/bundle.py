"""What runsc is told about a machine: an OCI bundle over the folders of its jail."""

import json
import os
import platform
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sandyard
from sandyard.runtime.local.agent.inside import SOCKETS
from sandyard.runtime.local.jail.isolation import HOME, LAUNCHER, WORKSPACE, Jail
from sandyard.runtime.local.jail.mount_namespace import BIND
from sandyard.runtime.local.jail.native_programs import start_program
from sandyard.runtime.local.jail.user_namespaces import id_extents

_AGENT = "/run/sandyard/agent"
_PYTHON = f"{_AGENT}/python"
_LIBRARIES, _LOADER, _CODE = f"{_AGENT}/lib", f"{_AGENT}/loader", f"{_AGENT}/code/sandyard"
_START = (
    f"import sys; sys.path.insert(0, {_AGENT + '/code'!r}); "
    "from sandyard.runtime.local.agent import inside; import json; "
    "inside.main(**json.loads(sys.argv[1]))"
)
_NAMESPACES = ("pid", "ipc", "uts", "mount", "user")
_ROOT_MAY = (
    *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID"),
    *("CAP_SETUID", "CAP_SETFCAP"),
)
_LOADERS = {
    "x86_64": "/lib64/ld-linux-x86-64.so.2",
    "aarch64": "/lib/ld-linux-aarch64.so.1",
}


def write_bundle(
    folder: Path,
    jail: Jail,
    bound: Mapping[str, Path],
    *,
    uid: int,
    network: str,
    sockets: Path,
    agent: Mapping[str, Any],
) -> None:
    """Into this folder; `bound` are files of the host by path inside, `network` is the path of its
    network namespace, `agent` the arguments of the agent inside. Raises OSError."""
    root = _assemble(jail)
    extents = [
        {"containerID": inside, "hostID": outside, "size": size}
        for inside, outside, size in id_extents(uid)
    ]
    own = {path: jail.reachable(each) for path, each in _agent_files(folder).items()}
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        _memory("/dev/shm", f"size={jail.shared_memory_bytes}"),  # noqa: S108 - inside
        _memory("/run/sandyard", "mode=755", "size=1m"),
        *(_bind(path, jail.reachable(each), "ro") for path, each in bound.items()),
        *(_bind(path, each, "ro") for path, each in own.items()),
        _bind(SOCKETS, jail.reachable(sockets), "rw"),
    ]
    capabilities = dict.fromkeys(("bounding", "effective", "permitted"), _ROOT_MAY)
    program = f"{_PYTHON}/bin/{Path(os.path.realpath(sys.executable)).name}"
    libraries = f"{_LIBRARIES}:{_PYTHON}/lib"
    loader = (_LOADER, "--inhibit-cache", "--library-path", libraries)
    command = (program, "-I", "-S", "-B", "-c", _START, json.dumps(agent))
    described = {
        "ociVersion": "1.0.2",
        "hostname": "sandbox",
        "root": {"path": str(root)},
        "mounts": mounts,
        "process": {
            "user": {"uid": 0, "gid": 0},
            "cwd": "/",
            "args": [*loader, *command],
            "env": [f"PYTHONHOME={_PYTHON}"],
            "capabilities": capabilities,
        },
        "linux": {
            "uidMappings": extents,
            "gidMappings": extents,
            "namespaces": [
                {"type": "network", "path": network},
                *({"type": each} for each in _NAMESPACES),
            ],
        },
    }
    (folder / "config.json").write_text(json.dumps(described))


def _agent_files(folder: Path) -> dict[str, Path]:
    """This process's interpreter and its libraries, because the machine's root may have none; by
    path inside."""
    files = {
        _PYTHON: Path(sys.base_prefix),
        _LIBRARIES: agent_libraries(),
        _LOADER: Path(_LOADERS[platform.machine()]),
        _CODE: Path(sandyard.__file__).parent,
    }
    if (program := start_program()) is not None:
        files[LAUNCHER] = folder / "launch"
        files[LAUNCHER].write_bytes(program)
        files[LAUNCHER].chmod(0o555)
    return files


def agent_libraries() -> Path:
    """The folder of the server's libraries, which the agent inside uses."""
    return Path("/usr/lib", str(sysconfig.get_config_var("MULTIARCH") or ""))


def _assemble(jail: Jail) -> Path:
    """Its folders as one tree, in this process's mount namespace. The kernel inside looks at files
    of this tree anew each time, because the agent outside writes there too; it keeps what it has
    read of other mounts."""
    if jail.system is None or jail.mounts is None:
        raise OSError("gVisor needs a root of its own for each sandbox")
    [(_, root), *layers] = jail.system.mounted().items()
    volumes = ((path, volume.source) for path, volume in jail.volumes.items())
    for path, source in (*layers, (WORKSPACE, jail.workspace), (HOME, jail.workspace), *volumes):
        jail.mounts.mount(str(source), root / path.lstrip("/"), None, BIND)
    return root


def _bind(path: str, source: Path, mode: str) -> dict[str, Any]:
    return {
        "destination": path,
        "type": "bind",
        "source": str(source),
        "options": ["rbind", mode],
    }


def _memory(path: str, *options: str) -> dict[str, Any]:
    return {"destination": path, "type": "tmpfs", "source": "tmpfs", "options": [*options]}

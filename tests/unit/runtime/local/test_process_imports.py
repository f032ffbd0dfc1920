"""What each process of the local runtime loads: the standard library, and its own rooms."""

import subprocess
import sys
from pathlib import Path

import pytest

import sandyard

_SOURCES = Path(sandyard.__file__).parent.parent
_LOCAL = "sandyard.runtime.local."
_SHARED = (_LOCAL + "host", _LOCAL + "ipc")
_PACKAGES = ("sandyard", "sandyard.runtime", "sandyard.runtime.local")
_ROOMS = {
    "agent.agent": (*_SHARED, _LOCAL + "agent", "sandyard.runtime.guest"),
    "egress.server": (
        *(*_SHARED, _LOCAL + "egress"),
        *("sandyard.runtime.egress", "sandyard.runtime.network_model"),
        "sandyard.runtime.secrets_model",
        *("sandyard.kit", "sandyard.kit.clock", "sandyard.kit.public_addresses"),
    ),
}


def modules_of(name: str) -> set[str]:
    """Those that a process without the installed packages has loaded."""
    script = f"import sys, {_LOCAL}{name}; print(*sys.modules)"
    command = [sys.executable, "-S", "-c", script]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(_SOURCES)}, capture_output=True, text=True, check=True
    )
    names = set(done.stdout.split()) - {"__main__"}
    return {each for each in names if each.partition(".")[0] not in sys.stdlib_module_names}


@pytest.mark.parametrize("name", _ROOMS)
def test_a_process_loads_the_standard_library_and_its_rooms(name: str) -> None:
    others = {
        each
        for each in modules_of(name) - set(_PACKAGES)
        if not any(each == room or each.startswith(f"{room}.") for room in _ROOMS[name])
    }
    assert not others


@pytest.mark.parametrize("name", ["supervisor.supervisor", "supervisor.fork_server"])
def test_a_supervisor_loads_nothing_of_the_server_and_no_installed_package(name: str) -> None:
    loaded = modules_of(name)
    assert {each for each in loaded if each.partition(".")[0] != "sandyard"} == set()
    assert not [each for each in loaded if each.startswith(f"{_LOCAL}server")]

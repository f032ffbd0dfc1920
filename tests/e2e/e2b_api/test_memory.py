"""E2B's pauses and forks keep memory and processes, where sandboxes have kernels of their own."""

import json
import sys
import time
from collections.abc import Iterator

import pytest

from tests.e2e.e2b_api.conftest import ROOMY, e2b_key
from tests.e2e.e2b_api.test_sdks import SCRIPTS, run
from tests.support.servers.processes import ServerProcess, run_command, sandyard_serve
from tests.support.servers.users import Person, signed_up


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("memory") / "data"
    with sandyard_serve(folder, environment=ROOMY | {"SANDBOX_ISOLATION": "gvisor"}) as server:
        yield server


@pytest.fixture(scope="module")
def ann(server: ServerProcess) -> Person:
    return signed_up(server, "ann", mail=1)


def test_the_python_sdk_pauses_and_forks_with_memory(server: ServerProcess, ann: Person) -> None:
    url = f"{server.url}/e2b"
    run(
        [sys.executable, str(SCRIPTS / "memory_calls.py")],
        {"E2B_API_KEY": e2b_key(ann), "E2B_API_URL": url, "E2B_SANDBOX_URL": url},
    )


def test_a_sandbox_of_the_platform_keeps_its_processes_if_asked(ann: Person) -> None:
    [template] = ann.call("GET", "/templates?visibility=official&q=base")["templates"]
    key = ann.call("POST", "/api-keys", {"name": "cli"}, expect=201)["api_key"]
    environment = {"SANDYARD_URL": ann.url, "SANDYARD_API_KEY": key}

    def sandbox(*words: str) -> str:
        ran = run_command("sandbox", *words, environment=environment)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    options = ("--template", template["template_id"], "--keeps-memory", "-o", "json")
    box = f"/sandboxes/{json.loads(sandbox('create', 'kept', *options))['sandbox_id']}"
    wait = {"command": "sleep 1; echo $HELD; sleep 1000", "background": True}
    held = {"env": {"HELD": "in memory"}}
    command = ann.call("POST", f"{box}/commands", wait | held, expect=201)["command_id"]
    stopped = ann.call("POST", f"{box}/stop")
    assert (stopped["status"], stopped["snapshot_has_memory"]) == ("stopped", True)
    ann.call("POST", f"{box}/start")
    until_written(ann, f"{box}/commands/{command}")
    assert ann.call("GET", f"{box}/commands/{command}")["exit_code"] is None
    # Files that are read while it is stopped leave its processes; a start may do without them.
    assert "its files and its processes are kept" in sandbox("stop", "kept", "--memory")
    ann.call("GET", f"{box}/files/list?path=.")
    assert ann.call("GET", box)["snapshot_has_memory"]
    ann.call("POST", f"{box}/start", {"memory": False})
    ann.call("GET", f"{box}/commands/{command}", expect=404)
    assert not ann.call("POST", f"{box}/stop", {"memory": False})["snapshot_has_memory"]
    ann.call("DELETE", box)


def until_written(ann: Person, path: str) -> None:
    deadline = time.monotonic() + 30
    while not (output := ann.call("GET", f"{path}/output?offset=0")["output"]):
        assert time.monotonic() < deadline
    assert output[0]["data"] == "in memory\n"

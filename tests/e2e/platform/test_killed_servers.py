"""The server is killed at each step of a sandbox's life: output has no gap or double, and nobody
is billed twice."""

import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.e2e.platform.test_crash import (
    ENVIRONMENT,
    assert_folded,
    eventually,
    new_sandbox,
    open_usages,
    supervisors,
)
from tests.support.servers.processes import sandyard_serve
from tests.support.servers.users import Person, signed_up

_LINES = 400
_WRITES = f"for n in $(seq {_LINES}); do echo $n; sleep 0.01; done; exit 7"


def read_on(person: Person, path: str, offset: int) -> tuple[str, int, bool]:
    """What it wrote behind the offset, where that ends, and whether it is the last."""
    told = person.call("GET", f"{path}/output?offset={offset}")
    assert all(piece["skipped"] == 0 for piece in told["output"])
    said = "".join(piece["data"] for piece in told["output"])
    return said, told["next_offset"], told["is_complete"]


def test_a_command_goes_on_and_its_output_is_read_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    said, offset = "", 0
    with sandyard_serve(data, environment=ENVIRONMENT) as server:
        ann = signed_up(server, "ann", mail=1)
        box = new_sandbox(ann, "box")
        ann.call("POST", f"/sandboxes/{box}/start")
        body = {"command": _WRITES, "background": True}
        begun = ann.call("POST", f"/sandboxes/{box}/commands", body, expect=201)
        path = f"/sandboxes/{box}/commands/{begun['command_id']}"
        while not said:
            said, offset, _ = read_on(ann, path, 0)
        server.kill()
    with sandyard_serve(data, environment=ENVIRONMENT) as server:
        ann.url = server.url
        is_last, deadline = False, time.monotonic() + 60
        while not is_last:
            assert time.monotonic() < deadline
            more, offset, is_last = read_on(ann, path, offset)
            said += more
        assert said.split() == [str(n) for n in range(1, _LINES + 1)]
        assert ann.call("GET", path)["exit_code"] == 7
        ann.call("DELETE", f"/sandboxes/{box}")
        usages = ann.call("GET", f"/usage?sandbox_id={box}&service_type=sandbox_runtime")["usage"]
        assert len(usages) == 1
    assert supervisors(data) == []
    assert open_usages(data) == []
    assert_folded(data)


@pytest.mark.parametrize("call", ["stop", pytest.param("delete", marks=pytest.mark.torture)])
def test_an_end_that_was_asked_for_is_recorded_once(tmp_path: Path, call: str) -> None:
    """The server is killed right after it was asked, before it can answer."""
    data = tmp_path / "data"
    with sandyard_serve(data, environment=ENVIRONMENT) as server:
        ann = signed_up(server, "ann", mail=1)
        box = new_sandbox(ann, "box")
        ann.call("POST", f"/sandboxes/{box}/start")
        method, path = ("DELETE", "") if call == "delete" else ("POST", "/stop")
        url = f"{server.url}/api/v1/sandboxes/{box}{path}"
        with suppress(httpx.TransportError):
            httpx.request(method, url, headers=ann.headers, timeout=0.03)
        server.kill()
    with sandyard_serve(data, environment=ENVIRONMENT) as server:
        ann.url = server.url
        ann.call(method, f"/sandboxes/{box}{path}")  # again, as a client does
        eventually(ann, box, "recycled" if call == "delete" else "stopped")
        usages = ann.call("GET", f"/usage?sandbox_id={box}&service_type=sandbox_runtime")["usage"]
        assert len(usages) == 1
    assert supervisors(data) == []
    assert [each for each in open_usages(data) if each[1] == "running"] == []
    assert_folded(data)

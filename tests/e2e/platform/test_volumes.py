"""Volumes in real sandboxes, through `sandyard serve`."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.servers.processes import sandyard_serve
from tests.support.servers.users import Person, signed_up


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    with sandyard_serve(tmp_path_factory.mktemp("volumes") / "data") as server:
        yield signed_up(server, "ann", mail=1)


def box(ann: Person, name: str, **mounted: Any) -> str:
    official = ann.call("GET", "/templates?visibility=official")["templates"]
    template = next(each for each in official if each["name"] == "python")
    body = {
        "name": name,
        "template_id": template["template_id"],
        "cpu_spec": 1,
        "memory_spec": 0.5,
        "volumes": [{"name": "models", **mounted}],
    }
    return f"/sandboxes/{ann.call('POST', '/sandboxes', body, expect=201)['sandbox_id']}"


def run(ann: Person, sandbox: str, command: str) -> list[str]:
    body = {"command": command}
    done = ann.call("POST", f"{sandbox}/commands", body, expect=201)
    return str(done["result"]["stdout"]).split()


def test_what_is_written_outlives_its_sandbox_and_one_writer_excludes_others(ann: Person) -> None:
    body = {"name": "models", "size_gb": 0.05}
    volume = ann.call("POST", "/volumes", body, expect=201)
    writer, other = [box(ann, name, path="/data") for name in ("writer", "other")]
    ann.call("POST", f"{writer}/start")
    assert run(ann, writer, "echo weights > /data/file; df --output=size -m /data | tail -1")
    refused = ann.call("POST", f"{other}/start", expect=409)["error"]
    assert refused["code"] == "VOLUME_MOUNTED"
    assert refused["details"]["sandbox_id"] == writer.rpartition("/")[2]
    ann.call("DELETE", writer)
    readers = [box(ann, f"reader-{n}", path="/workspace/m", read_only=True) for n in range(2)]
    for reader in readers:
        ann.call("POST", f"{reader}/start")
        assert run(ann, reader, "cat m/file; touch m/x 2>&1 | grep -o Read-only") == [
            *("weights", "Read-only")
        ]
    ann.call("POST", f"{other}/start", expect=409)
    for reader in readers:
        ann.call("POST", f"{reader}/stop")
    ann.call("POST", f"{other}/start")
    assert run(ann, other, "cat /data/file; rm /data/file; ls /data | wc -l") == ["weights", "0"]
    ann.call("DELETE", f"/volumes/{volume['volume_id']}", expect=409)
    ann.call("DELETE", other)
    ann.call("DELETE", f"/volumes/{volume['volume_id']}", expect=204)

"""Two servers on one PostgreSQL, one store of files and one cluster of three nodes: any of them
serves any call, and what one leaves behind the other finishes."""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.platform.test_crash import new_sandbox
from tests.support.kubernetes.serving import ServingCluster, serving_cluster
from tests.support.servers.processes import (
    ServerProcess,
    run_command,
    sandyard_serve,
    verify,
)
from tests.support.servers.sandbox_programs import page_of
from tests.support.servers.users import Person, signed_up, until
from tests.support.storage.engines import create_database


@dataclass
class Replicas:
    environment: dict[str, str]
    folder: Path
    serving: ServingCluster

    def serve(self, name: str) -> AbstractContextManager[ServerProcess]:
        return sandyard_serve(self.folder / name, environment=self.environment)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[ServingCluster]:
    with serving_cluster(tmp_path / "cluster", nodes=3) as serving:
        yield serving


@pytest.fixture
async def replicas(postgres_url: str, tmp_path: Path, serving: ServingCluster) -> Replicas:
    url = await create_database(postgres_url)
    run_command("db", "upgrade", environment={"DATABASE_URL": url}).check_returncode()
    settings = {
        "DATABASE_URL": url,
        "DATABASE_POOL_SIZE": "4",
        "PARTS": "platform,previews",
        "ENDS_INTERVAL_SEC": "0.5",
        "RECONCILE_INTERVAL_SEC": "1",
        "JOB_LEASE_SEC": "5",
    }
    return Replicas(settings | serving.settings, tmp_path, serving)


def run_in(person: Person, sandbox_id: str, script: str) -> str:
    path, body = f"/sandboxes/{sandbox_id}/commands", {"command": ["sh", "-c", script]}
    return str(person.call("POST", path, body, expect=201)["result"]["stdout"])


def status_of(person: Person, sandbox_id: str) -> str:
    return str(person.call("GET", f"/sandboxes/{sandbox_id}")["status"])


def test_what_a_killed_server_ran_another_serves(replicas: Replicas) -> None:
    cluster, api = replicas.serving.cluster, replicas.serving.cluster.api
    with replicas.serve("other") as other:
        with replicas.serve("one") as one:
            ann = signed_up(one, "ann", mail=1)
            elsewhere = Person(other.url, ann.headers)
            volume = ann.call("POST", "/volumes", {"name": "models", "size_gb": 0.1}, expect=201)
            box = new_sandbox(ann, "box", volumes=[{"name": "models", "path": "/data"}])
            url = ann.call("POST", f"/sandboxes/{box}/start")["preview_url"]
            assert page_of(elsewhere, url).status_code == 200
            run_in(elsewhere, box, "echo the content >kept; cp kept /data")
            assert run_in(ann, box, "cat kept") == "the content\n"
            project = ann.call("POST", "/projects", {"name": "site"}, expect=201)["project_id"]
            files = {"files": [{"path": "index.html", "content": "hello"}]}
            elsewhere.call("PUT", f"/projects/{project}/files", files)
            ann.call("POST", f"/projects/{project}/sync")
            elsewhere.call("POST", f"/projects/{project}/sync")
            one.kill()
        assert (status_of(elsewhere, box), page_of(elsewhere, url).status_code) == ("running", 200)
        node = replicas.serving.call(lambda: _node_of_sandbox(replicas.serving))
        replicas.serving.call(lambda: cluster.nodes.cut_off(node))
        assert status_of(elsewhere, box) == "running"
        replicas.serving.call(lambda: cluster.nodes.connect(node))
        assert run_in(elsewhere, box, "cat kept") == "the content\n"
        stopped = until(lambda: _stopped(elsewhere, box))
        assert stopped["status"] == "stopped"
        elsewhere.call("POST", f"/sandboxes/{box}/start")
        assert run_in(elsewhere, box, "cat kept /data/kept") == 2 * "the content\n"
        elsewhere.call("POST", f"/sandboxes/{box}/stop")
        elsewhere.call("DELETE", f"/volumes/{volume['volume_id']}", expect=204)
    made = Counter(
        found["metadata"]["name"]
        for _, kind, event, found in api.history()
        if (kind, event) == ("pods", "ADDED")
    )
    assert set(made.values()) == {1}
    assert len(made) == 3, "a sandbox twice, a preview once"
    code, said = verify(replicas.folder / "other", replicas.environment)
    assert code == 0, said


def _node_of_sandbox(serving: ServingCluster) -> str:
    nodes = serving.cluster.nodes
    return next(pod.node.name for pod in nodes.pods.values() if pod.name.startswith("sandbox-"))


def _stopped(person: Person, sandbox_id: str) -> dict[str, str]:
    found: dict[str, str] = person.call("POST", f"/sandboxes/{sandbox_id}/stop")
    return found

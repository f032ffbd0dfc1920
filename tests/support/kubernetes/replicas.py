"""Two servers on one PostgreSQL, one bucket and one cluster of three nodes, any of which can go
away and come back."""

import asyncio
import contextlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import boto3
import httpx
import sqlalchemy as sa
from moto.server import ThreadedMotoServer

from sandyard.kit.free_ports import free_port
from sandyard.tools.gameday.engines import TcpProxy
from tests.support.kubernetes.nodes import RunningPod
from tests.support.kubernetes.serving import ServingCluster, serving_cluster
from tests.support.servers.processes import (
    ServerProcess,
    run_command,
    sandyard_serve,
    verify,
)
from tests.support.servers.users import Person, signed_up, until
from tests.support.storage.engines import AWS_ENVIRONMENT, create_database

_BUCKET = "files"
_NO_ANSWER = 0
_TOLD_WELL = {200, 201, 204, 409, 503, _NO_ANSWER}


@dataclass
class Replicas:
    serving: ServingCluster
    environment: dict[str, str]
    folder: Path
    to_store: TcpProxy
    to_database: TcpProxy
    servers: dict[str, ServerProcess] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    """Of the one account."""
    _running: dict[str, contextlib.ExitStack] = field(default_factory=dict)

    def serve(self, name: str) -> ServerProcess:
        """Start it, at the port that it has had."""
        before = self.servers.get(name)
        port = int(before.url.rpartition(":")[2]) if before else None
        self._running[name] = stack = contextlib.ExitStack()
        running = sandyard_serve(self.folder / name, environment=self.environment, port=port)
        self.servers[name] = stack.enter_context(running)
        return self.servers[name]

    def kill(self, name: str) -> None:
        self.servers[name].kill()
        self._running.pop(name).close()

    def close(self) -> None:
        for stack in self._running.values():
            stack.close()

    def cut(self, proxy: TcpProxy, *, is_cut: bool) -> None:
        self.serving.call(partial(proxy.set_cut, is_cut=is_cut))

    def cut_node(self, sandbox_id: str, *, is_cut: bool) -> None:
        """The one on which this sandbox runs."""
        nodes = self.serving.cluster.nodes
        name = self._pod_of(sandbox_id)[1].node.name
        self.serving.call(partial(nodes.cut_off if is_cut else nodes.connect, name))

    def drain(self, sandbox_id: str) -> None:
        """As `kubectl drain` does with the Pod of this sandbox."""
        uid, pod = self._pod_of(sandbox_id)
        client = self.serving.cluster.client()
        self.serving.run(client.delete("pods", pod.name, uid=uid))

    def _pod_of(self, sandbox_id: str) -> tuple[str, RunningPod]:
        nodes = self.serving.cluster.nodes
        pods = self.serving.call(lambda: list(nodes.pods.items()))
        return next((uid, pod) for uid, pod in pods if sandbox_id in pod.name)

    def ann(self) -> Person:
        ann = signed_up(self.servers["one"], "ann", mail=1)
        self.headers = ann.headers
        return ann

    def check(self) -> int:
        """No attempt ran twice, nothing had two Pods at once, and the data agrees. Returns how
        many Pods there were."""
        added: Counter[str] = Counter()
        there: dict[str, set[str]] = defaultdict(set)
        for _, kind, event, found in self.serving.call(self.serving.cluster.api.history):
            name = found["metadata"]["name"]
            if kind != "pods":
                continue
            added[name] += event == "ADDED"
            run, *_ = found["metadata"]["annotations"]["sandyard.dev/run"].rpartition(".")
            phase = found.get("status", {}).get("phase")
            if event == "DELETED" or phase in ("Succeeded", "Failed"):
                there[run].discard(name)
            elif event == "ADDED":
                there[run].add(name)
                assert len(there[run]) == 1, f"{run} has two Pods at once: {there[run]}"
        assert set(added.values()) <= {1}, f"an attempt has run twice: {added}"
        code, said = verify(self.folder / "one", self.environment)
        assert code == 0, said
        return len(added)


@contextmanager
def replicas(folder: Path, postgres_url: str, **settings: str) -> Iterator[Replicas]:
    """Both are running."""
    moto = ThreadedMotoServer(port=0)
    moto.start()
    try:
        with serving_cluster(folder / "cluster", nodes=3) as serving:
            found = _wired(folder, serving, moto.get_host_and_port(), postgres_url, settings)
            try:
                found.serve("one")
                found.serve("other")
                yield found
            finally:
                found.close()
                for proxy in (found.to_store, found.to_database):
                    serving.run(proxy.stop())
    finally:
        moto.stop()


def _wired(
    folder: Path,
    serving: ServingCluster,
    moto: tuple[str, int],
    postgres_url: str,
    settings: dict[str, str],
) -> Replicas:
    made = sa.make_url(asyncio.run(create_database(postgres_url)))
    to_store = TcpProxy(partial(asyncio.open_connection, *moto), free_port())
    place = made.query.get("host") or made.host
    if isinstance(place, str) and place.startswith("/"):
        socket = f"{place}/.s.PGSQL.{made.query.get('port') or made.port or 5432}"
        connect = partial(asyncio.open_unix_connection, socket)
    else:
        connect = partial(asyncio.open_connection, made.host, made.port or 5432)
    to_database = TcpProxy(connect, free_port())
    for proxy in (to_store, to_database):
        serving.run(proxy.start())
    url = made.set(host="127.0.0.1", port=to_database.port, query={})
    store = f"http://127.0.0.1:{to_store.port}"
    client: Any = boto3.Session(
        aws_access_key_id=AWS_ENVIRONMENT["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=AWS_ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
    ).client("s3", endpoint_url=store)
    client.create_bucket(Bucket=_BUCKET)
    environment = {
        **AWS_ENVIRONMENT,
        **serving.settings,
        "AWS_ENDPOINT_URL": store,
        "AWS_DEFAULT_REGION": "us-east-1",
        "SNAPSHOT_STORE": f"s3://{_BUCKET}/store",
        "DATABASE_URL": url.render_as_string(hide_password=False),
        "DATABASE_POOL_SIZE": "4",
        "PARTS": "platform,previews",
        "ENDS_INTERVAL_SEC": "0.5",
        "RECONCILE_INTERVAL_SEC": "1",
        "JOB_LEASE_SEC": "5",
        **settings,
    }
    run_command("db", "upgrade", environment=environment).check_returncode()
    return Replicas(serving, environment, folder, to_store, to_database)


@dataclass
class Load:
    """Commands that each write one line into a sandbox's file, through either server in turn."""

    replicas: Replicas
    ann: Person
    sandbox_id: str
    acknowledged: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    _ending: Event = field(default_factory=Event)

    @contextmanager
    def running(self) -> Iterator["Load"]:
        thread = Thread(target=self._run)
        thread.start()
        try:
            yield self
        finally:
            self._ending.set()
            thread.join(120)
        assert set(self.statuses) <= _TOLD_WELL, f"an outage is 503 or no answer: {self.statuses}"

    def until_acknowledged(self, more: int = 3) -> None:
        """It goes on."""
        before = len(self.acknowledged)
        until(lambda: len(self.acknowledged) >= before + more, within_sec=120)

    def _run(self) -> None:
        for number in itertools.count():
            if self._ending.is_set():
                return
            server = self.replicas.servers["one" if number % 2 else "other"]
            path = f"{server.url}/api/v1/sandboxes/{self.sandbox_id}/commands"
            script = f"echo line-{number} >>journal && sync journal && echo done"
            try:
                answer = httpx.post(
                    path,
                    json={"command": ["sh", "-c", script]},
                    headers=self.ann.headers,
                    timeout=30,
                )
            except httpx.TransportError:
                self.statuses[_NO_ANSWER] += 1
                self._ending.wait(0.2)
                continue
            self.statuses[answer.status_code] += 1
            if answer.status_code == 201 and answer.json()["result"]["stdout"] == "done\n":
                self.acknowledged.append(f"line-{number}")
            else:
                self._ending.wait(0.2)

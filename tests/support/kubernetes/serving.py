"""A cluster for servers in processes of their own: it runs in a thread, in a loop of its own."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from tests.support.kubernetes.admission import NAMESPACE
from tests.support.kubernetes.api_server import TOKEN
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.nodes import AGENT_IMAGE, DEBIAN

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServingCluster:
    cluster: Cluster
    settings: dict[str, str]
    _loop: asyncio.AbstractEventLoop

    def call(self, work: Callable[[], T]) -> T:
        async def called() -> T:
            return work()

        return self.run(called())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


@contextmanager
def serving_cluster(folder: Path, *, nodes: int) -> Iterator[ServingCluster]:
    folder.mkdir()
    (folder / "store").mkdir()
    (folder / "token").write_text(TOKEN)
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    cluster = Cluster(folder, nodes)
    serving = ServingCluster(cluster, {}, loop)
    serving.run(cluster.start())
    serving.settings.update(
        SANDBOX_RUNTIME="kubernetes",
        KUBERNETES_URL=cluster.api.url,
        KUBERNETES_NAMESPACE=NAMESPACE,
        KUBERNETES_TOKEN_FILE=str(folder / "token"),
        KUBERNETES_AGENT_IMAGE=AGENT_IMAGE,
        KUBERNETES_IMAGE=DEBIAN,
        SNAPSHOT_STORE=f"file:{folder / 'store'}",
    )
    try:
        yield serving
    finally:
        serving.run(cluster.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()

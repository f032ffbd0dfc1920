"""What a server remembers of the cluster's objects."""

import asyncio
from typing import Any

from sandyard.runtime.kubernetes.api import ApiAddress, KubernetesApi, Object
from sandyard.runtime.kubernetes.informer import Informer


def pod(version: int) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "a",
            "resourceVersion": str(version),
            "managedFields": [{"manager": "kubelet"}],
        },
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running"},
    }


def test_what_nobody_reads_is_not_remembered() -> None:
    informer = Informer(KubernetesApi(ApiAddress("http://127.0.0.1:9", "sandboxes")), "pods")
    informer.note(pod(7))
    informer.note(pod(6) | {"status": {"phase": "Pending"}})  # an older answer came later
    metadata = {"name": "a", "resourceVersion": "7"}
    assert informer.objects == {"a": {"metadata": metadata, "status": {"phase": "Running"}}}


class Broken(KubernetesApi):
    async def list(self, *_: object, **__: object) -> tuple[list[Object], str]:
        return [pod(7)], "7"

    async def watch(self, *_: object, **__: object) -> Any:
        yield "MODIFIED", pod(8)
        raise ValueError("not JSON")


async def test_a_watch_that_died_is_begun_again_by_the_next_use() -> None:
    informer = Informer(Broken(ApiAddress("http://127.0.0.1:9", "sandboxes")), "pods")
    async with asyncio.timeout(20):
        for _ in range(3):
            informer.objects.clear()
            await informer.synced()
            while "a" not in informer.objects:
                await informer.changed()
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0)
    await informer.close()

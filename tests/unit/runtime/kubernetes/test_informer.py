"""What a server remembers of the cluster's objects."""

from typing import Any

from sandyard.runtime.kubernetes.api import ApiAddress, KubernetesApi
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

"""Volumes in a cluster, as pure functions: the claim of each, how a Pod mounts them, and the Pod
that copies one."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sandyard.runtime.kubernetes.manifest import (
    CONTAINER,
    CREATION,
    OURS,
    PREFIX,
    SECURITY,
    PodOptions,
    pod_security,
    short_name,
)
from sandyard.runtime.model import Mount

_VOLUME, _SIZE, _COPY_OF = f"{PREFIX}/volume", f"{PREFIX}/size", f"{PREFIX}/copy-of"
COPIED = {"metadata": {"annotations": {_COPY_OF: None}}}
"""The patch, when the files are there."""
_WRITER, _READER = "writer", "reader"
_HOST = "kubernetes.io/hostname"
_COPY = (
    *("find", "/from", "-mindepth", "1", "-maxdepth", "1", "!", "-name", "lost+found"),
    *("-exec", "cp", "-a", "-t", "/to", "{}", "+"),
)
"""The roots of volumes, and what a file system has of its own there, are root's."""


def name_of(volume_id: str) -> str:
    return short_name(f"volume-{volume_id}", volume_id)


def volume_id_of(claim: Mapping[str, Any]) -> str:
    return str(claim["metadata"]["annotations"][_VOLUME])


def size_of(claim: Mapping[str, Any]) -> int:
    """As it was ordered: the cluster writes sizes in units of its own."""
    return int(claim["metadata"]["annotations"][_SIZE])


def made_at(claim: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(claim["metadata"]["creationTimestamp"]).timestamp()


def is_being_copied(claim: Mapping[str, Any]) -> bool:
    """Or was, by a server that died."""
    return _COPY_OF in claim["metadata"]["annotations"]


def claim(
    volume_id: str, size_bytes: int, storage_class: str | None, *, copy_of: str | None
) -> dict[str, Any]:
    """For the Pods of one node at a time, which every storage can do."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name_of(volume_id),
            "labels": {**OURS},
            "annotations": {
                _VOLUME: volume_id,
                _SIZE: str(size_bytes),
                **({_COPY_OF: copy_of} if copy_of else {}),
            },
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": str(size_bytes)}},
            **({"storageClassName": storage_class} if storage_class else {}),
        },
    }


def resized(size_bytes: int) -> dict[str, Any]:
    """The patch."""
    return {
        "metadata": {"annotations": {_SIZE: str(size_bytes)}},
        "spec": {"resources": {"requests": {"storage": str(size_bytes)}}},
    }


def add_volumes(pod: dict[str, Any], mounts: Sequence[Mount]) -> None:
    """The scheduler then places it where others read its volumes, and keeps it waiting while one
    has a volume in a way that excludes this."""
    if not mounts:
        return
    spec, labels = pod["spec"], pod["metadata"]["labels"]
    [container] = spec["containers"]
    near, apart = [], []
    for number, mount in enumerate(mounts):
        name, label = f"volume-{number}", f"volume.{PREFIX}/{mount.volume_id}"
        labels[label] = _READER if mount.is_read_only else _WRITER
        has_it = {"key": label, "operator": "Exists"}
        writes = {"key": label, "operator": "In", "values": [_WRITER]}
        near.append(_pods(has_it))
        apart.append(_pods(writes if mount.is_read_only else has_it))
        source = {"claimName": name_of(mount.volume_id)}
        spec["volumes"].append({"name": name, "persistentVolumeClaim": source})
        container["volumeMounts"].append(
            {"name": name, "mountPath": mount.path, "readOnly": mount.is_read_only}
        )
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    spec["affinity"] = {"podAffinity": {required: near}, "podAntiAffinity": {required: apart}}


def _pods(expression: Mapping[str, Any]) -> dict[str, Any]:
    return {"labelSelector": {"matchExpressions": [expression]}, "topologyKey": _HOST}


def copying_pod(source: str, target: str, options: PodOptions, *, seconds: int) -> dict[str, Any]:
    """It reads one volume, writes another, and ends."""
    resources = {"cpu": "500m", "memory": "128Mi"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name_of(target), "labels": {}, "annotations": {CREATION: target}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "activeDeadlineSeconds": seconds,
            "terminationGracePeriodSeconds": 1,
            "securityContext": pod_security(),
            "containers": [
                {
                    "name": CONTAINER,
                    "image": options.agent_image,
                    "command": [*_COPY],
                    "securityContext": {**SECURITY, "readOnlyRootFilesystem": True},
                    "resources": {"requests": resources, "limits": resources},
                    "volumeMounts": [],
                }
            ],
            "volumes": [],
        },
    }
    add_volumes(pod, [Mount(source, "/from", is_read_only=True), Mount(target, "/to")])
    # Nobody has the new one, so it is made where the other is.
    near = pod["spec"]["affinity"]["podAffinity"]  # type: ignore[index]
    near["requiredDuringSchedulingIgnoredDuringExecution"].pop()
    return pod

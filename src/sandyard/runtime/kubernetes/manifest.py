"""The objects of a run in the cluster, as pure functions: a Secret with its records and keys, and a
Pod."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from sandyard.runtime.kubernetes import egress_policy
from sandyard.runtime.model import IsolationMode, Limits, RunId
from sandyard.runtime.remote.envd import PORT
from sandyard.runtime.remote.guest import HOME
from sandyard.runtime.sessions.model import WORKSPACE

Manifest = Mapping[str, Any]

PREFIX = "sandyard.dev"
RUN, CREATION = f"{PREFIX}/run", f"{PREFIX}/creation"
KIND, ATTEMPT = f"{PREFIX}/kind", f"{PREFIX}/attempt"
OURS: Mapping[str, str] = {"app.kubernetes.io/managed-by": PREFIX}
SELECTOR = ",".join(f"{name}={value}" for name, value in OURS.items())
CONTAINER = "sandbox"
AGENT_FOLDER = "/.sandyard"
AGENT_HOME = "/.sandyard-home"
"""With the agent's records, and the workspace, which is the home folder of all commands."""
AGENT_IN_IMAGE = "/opt/sandyard/agent"
AGENT_MODULE = "sandyard.e2b_api.envd.standalone.pod"
GUEST_MODULE = "sandyard.runtime.guest"
USER_ID = 1000
GRACE_SEC = 600
"""How long the files of a Pod that is deleted wait to be stored."""
_LONGEST_NAME = 63
_SEPARATOR = re.compile(r"[^a-z0-9]+")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_OVERHEAD_BYTES = 64 << 20
"""The agent's own memory."""
_UNREACHABLE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@dataclass(frozen=True, slots=True)
class PodImage:
    """What a Pod runs in. One with root has a user namespace of its own, and is in a namespace for
    such Pods."""

    name: str
    has_root: bool = False
    is_read_only: bool = False
    """Whether its root file system is; its home, its workspace and /tmp are not."""
    runtime_class: str | None = None

    @classmethod
    def of(cls, text: str) -> "PodImage":
        """`image;root;read-only;class=NAME`, each but the first optional. Raises ValueError."""
        name, *words = text.split(";")
        options = {key: value for key, _, value in (each.partition("=") for each in words)}
        if unknown := options.keys() - {"root", "read-only", "class"}:
            raise ValueError(f"{text}: unknown {', '.join(sorted(unknown))}")
        return cls(name, "root" in options, "read-only" in options, options.get("class"))


@dataclass(frozen=True, slots=True)
class PodOptions:
    agent_image: str
    """Has the agent, which an init container copies."""
    image: PodImage
    """What a sandbox without an environment runs in."""
    images: Mapping[str, PodImage] = field(default_factory=dict)
    """By the names of environments."""
    gvisor_class: str | None = None
    priority_class: str | None = None
    root_namespace: str | None = None
    """Of the Pods with root."""
    volume_class: str | None = None
    """The StorageClass of volumes; None is the cluster's default."""
    port: int = 8080
    """The value of PORT for a program."""
    longest_sec: float = 7 * 86400.0
    """After this the cluster ends a Pod, whatever its agent does."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What lets the server and a Pod's agent know each other."""

    token: str = field(repr=False)
    certificate: str
    key: str = field(repr=False)


def name_of(run_id: RunId) -> str:
    """Different runs have different names, whatever characters are in their ids."""
    return short_name(f"{run_id.kind}-{run_id.id}-{run_id.attempt}", str(run_id))


def short_name(words: str, of: str) -> str:
    digest = sha256(of.encode()).hexdigest()[:10]
    plain = _SEPARATOR.sub("-", words.lower()).strip("-")
    return f"{plain[: _LONGEST_NAME - len(digest) - 1].rstrip('-')}-{digest}"


def run_id_of(manifest: Manifest) -> RunId:
    return RunId.of(manifest["metadata"]["annotations"][RUN])


def command(module: str, *arguments: str) -> list[str]:
    """The interpreter in the agent's folder, which needs nothing of the image around it."""
    folder = AGENT_FOLDER
    loader = [f"{folder}/ld.so", "--library-path", f"{folder}/lib", f"{folder}/bin/python3"]
    return [*loader, "-I", "-m", module, *arguments]


def secret(run_id: RunId, data: Mapping[str, str]) -> dict[str, Any]:
    """`data` is in base64."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": _metadata(run_id),
        "data": dict(data),
    }


def pod(
    run_id: RunId,
    limits: Limits,
    options: PodOptions,
    *,
    image: PodImage,
    isolation: IsolationMode | None,
    egress: Mapping[str, Any] | None,
    deadline_at: float,
    creation: str,
) -> dict[str, Any]:
    """It fits the restricted Pod Security Standard, unless its image has root. `egress` is for the
    egress proxy, if there is one. `creation` identifies the call that made it."""
    metadata = _metadata(run_id)
    if egress is not None:
        metadata["annotations"][egress_policy.OWN] = json.dumps(egress)
    metadata["annotations"][CREATION] = creation
    if image.has_root:
        metadata["namespace"] = options.root_namespace
    runtime_class = options.gvisor_class if isolation == "gvisor" else image.runtime_class
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "activeDeadlineSeconds": int(options.longest_sec),
        "terminationGracePeriodSeconds": GRACE_SEC,
        "securityContext": _ROOT_SECURITY if image.has_root else pod_security(),
        **({"hostUsers": False} if image.has_root else {}),
        # A node that is cut off and comes back still runs it.
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute"} for key in _UNREACHABLE
        ],
        "initContainers": [_init_container(options)],
        "containers": [
            _container(
                run_id,
                limits,
                image=image,
                deadline_at=deadline_at,
                has_egress=egress is not None,
            )
        ],
        # Names are resolved by the egress proxy: whatever asks for one here fails at once.
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["127.0.0.1"]},
        "volumes": [
            {"name": "agent", "emptyDir": {}},
            {"name": "home", "emptyDir": {"sizeLimit": str(limits.storage_bytes)}},
            {"name": "tmp", "emptyDir": {"sizeLimit": str(limits.storage_bytes)}},
        ],
        **({"runtimeClassName": runtime_class} if runtime_class else {}),
        **({"priorityClassName": options.priority_class} if options.priority_class else {}),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _metadata(run_id: RunId) -> dict[str, Any]:
    return {"name": name_of(run_id), **identity(run_id)}


def identity(run_id: RunId) -> dict[str, Any]:
    """By which people find what belongs to a run."""
    labels = {**OURS, KIND: run_id.kind}
    if _LABEL.fullmatch(run_id.attempt):
        labels[ATTEMPT] = run_id.attempt
    return {"labels": labels, "annotations": {RUN: str(run_id)}}


def pod_security() -> dict[str, Any]:
    return {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": USER_ID,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


_NAMES = [
    {"name": "agent", "mountPath": f"/{each}", "subPath": each, "readOnly": True}
    for each in ("etc/passwd", "etc/group")
]
_ROOT_SECURITY = {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}}
SECURITY: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


def _init_container(options: PodOptions) -> dict[str, Any]:
    resources = {"cpu": "500m", "memory": "128Mi"}
    return {
        "name": "agent",
        "image": options.agent_image,
        "command": ["cp", "-r", f"{AGENT_IN_IMAGE}/.", AGENT_FOLDER],
        "securityContext": {**SECURITY, "readOnlyRootFilesystem": True},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": resources},
        "volumeMounts": [{"name": "agent", "mountPath": AGENT_FOLDER}],
    }


def _container(
    run_id: RunId, limits: Limits, *, image: PodImage, deadline_at: float, has_egress: bool
) -> dict[str, Any]:
    security = {} if image.has_root else SECURITY
    memory = str(limits.memory_bytes + _OVERHEAD_BYTES)
    cpu = f"{round(limits.cpu * 1000)}m"
    keys = {"TOKEN": "token", "CERTIFICATE": "certificate", "KEY": "key"}
    return {
        "name": CONTAINER,
        "image": image.name,
        "command": command(AGENT_MODULE),
        "workingDir": HOME,
        "env": [
            {"name": "HOME", "value": AGENT_HOME},
            {"name": "SANDYARD_RUN", "value": str(run_id)},
            {"name": "SANDYARD_DEADLINE_AT", "value": str(deadline_at)},
            *(
                {"name": f"SANDYARD_{name}", **_from_secret(run_id, key)}
                for name, key in keys.items()
            ),
            *(egress_policy.environment(_from_secret(run_id, "proxy")) if has_egress else ()),
        ],
        "ports": [{"name": "agent", "containerPort": PORT}],
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": PORT, "scheme": "HTTPS"},
            "periodSeconds": 1,
            "failureThreshold": 1,
        },
        "securityContext": {**security, "readOnlyRootFilesystem": image.is_read_only},
        "resources": {
            "requests": {"cpu": cpu, "memory": memory},
            "limits": {
                "cpu": cpu,
                "memory": memory,
                "ephemeral-storage": str(2 * limits.storage_bytes + (256 << 20)),
            },
        },
        "volumeMounts": [
            {"name": "agent", "mountPath": AGENT_FOLDER, "readOnly": True},
            {"name": "home", "mountPath": AGENT_HOME},
            {"name": "home", "mountPath": WORKSPACE, "subPath": "workspace"},
            {"name": "home", "mountPath": HOME, "subPath": "workspace"},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - its own
            *([] if image.has_root else _NAMES),
        ],
    }


def _from_secret(run_id: RunId, key: str) -> dict[str, Any]:
    return {"valueFrom": {"secretKeyRef": {"name": name_of(run_id), "key": key}}}

"""What the API server takes: objects that fit their schemas, and Pods that fit their namespace."""

import re
from collections.abc import Iterator
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]

NAMESPACE = "sandboxes"
ROOT_NAMESPACE = "root-sandboxes"
"""Under the baseline profile, with a policy that Pods have user namespaces of their own."""
_VERSION = "1.31"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_MOST_SECRET_BYTES = 1 << 20
KINDS = {"pods": "Pod", "secrets": "Secret", "persistentvolumeclaims": "PersistentVolumeClaim"}
Object = dict[str, Any]


class RefusedError(Exception):
    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


def validate(kind: str, found: Object, namespace: str) -> None:
    try:
        kubernetes_validate.validate(found, _VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        raise RefusedError(422, "Invalid", str(error)) from error
    metadata = found["metadata"]
    problems = [
        len(metadata["name"]) > 63 or not _NAME.fullmatch(metadata["name"]),
        metadata["namespace"] != namespace,
        found["kind"] != KINDS[kind],
        any(
            not (_LABEL_KEY.fullmatch(key) and _LABEL.fullmatch(value))
            for key, value in metadata.get("labels", {}).items()
        ),
        sum(map(len, found.get("data", {}).values())) * 3 // 4 > _MOST_SECRET_BYTES,
    ]
    if any(problems):
        raise RefusedError(422, "Invalid", f"{metadata['name']} is invalid: {problems}")


def admit(pod: Object) -> None:
    """The restricted Pod Security Standard, or for root the baseline and a user namespace; and what
    a sandbox must not have besides."""
    has_root = pod["metadata"]["namespace"] == ROOT_NAMESPACE
    if wrong := [*_wrong(pod["spec"], has_root=has_root)]:
        message = f'pods "{pod["metadata"]["name"]}" is forbidden: violates PodSecurity: {wrong}'
        raise RefusedError(403, "Forbidden", message)


def _wrong(spec: Object, *, has_root: bool) -> Iterator[str]:
    security = spec.get("securityContext", {})
    if has_root and spec.get("hostUsers") is not False:
        yield "hostUsers"
    if not has_root and (not security.get("runAsNonRoot") or security.get("runAsUser") == 0):
        yield "runAsNonRoot"
    if security.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "seccompProfile"
    if any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
        yield "host namespaces"
    allowed = {"emptyDir", "persistentVolumeClaim", "secret"}
    if any(not allowed & each.keys() for each in spec.get("volumes", ())):
        yield "volumes"
    if spec.get("automountServiceAccountToken") is not False:
        yield "a token of a service account"
    if spec.get("enableServiceLinks") is not False:
        yield "links of services"
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        yield from _wrong_in(container.get("securityContext", {}), has_root=has_root)


def _wrong_in(security: Object, *, has_root: bool) -> Iterator[str]:
    capabilities = security.get("capabilities", {})
    if not has_root and security.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation"
    if capabilities.get("add") or not (has_root or capabilities.get("drop") == ["ALL"]):
        yield "capabilities"
    if security.get("privileged"):
        yield "privileged"

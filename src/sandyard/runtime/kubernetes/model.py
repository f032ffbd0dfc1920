"""What the state of a Pod means for its machine: pure functions of what the API server tells."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from sandyard.runtime.kubernetes.manifest import CONTAINER
from sandyard.runtime.model import EndReason
from sandyard.runtime.programs.lifecycle import end_message

Pod = Mapping[str, Any]
_IMAGE_TROUBLES = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
)
_CONFIG_TROUBLES = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
_STORAGE = ("ephemeral", "emptydir", "exceeded its local")

PodState = Literal["pending", "running", "unreachable", "ending"]
"""`unreachable`: its node is cut off. `ending`: its files are being stored."""


@dataclass(frozen=True, slots=True)
class PodEnd:
    reason: EndReason
    at: float
    message: str


def is_up(pod: Pod) -> bool:
    """Whether its agent can be reached, as far as the cluster knows."""
    return address_of(pod) is not None and "running" in _container(pod).get("state", {})


def address_of(pod: Pod) -> str | None:
    address: str | None = pod.get("status", {}).get("podIP")
    return address


def has_news(pod: Pod) -> bool:
    """Whether its agent knows what no server has recorded, as far as its kubelet can tell."""
    return not _container(pod).get("ready", False)


def is_deleted(pod: Pod) -> bool:
    """Whether its end was requested by whoever deleted it: for a drain, a preemption, by hand."""
    return "deletionTimestamp" in pod["metadata"]


def end_of(pod: Pod, *, now: float) -> PodEnd | None:
    """How it ended; None while it may still run. A Pod of a lost node still may."""
    status = pod.get("status", {})
    terminated = _container(pod).get("state", {}).get("terminated")
    if status.get("phase") not in ("Failed", "Succeeded") and terminated is None:
        return None
    at = _time((terminated or {}).get("finishedAt")) or now
    why, message = str(status.get("reason", "")), str(status.get("message", ""))
    if why == "Evicted":
        is_storage = any(word in message.lower() for word in _STORAGE)
        reason: EndReason = "out_of_storage" if is_storage else "terminated"
        return PodEnd(reason, at, f"Its node evicted it: {message}")
    if why == "DeadlineExceeded":
        return PodEnd("timeout", at, end_message("timeout"))
    if terminated is not None and terminated.get("reason") == "OOMKilled":
        return PodEnd("out_of_memory", at, end_message("out_of_memory"))
    return _recorded_end(terminated or {}, at) or PodEnd("killed", at, _words(why, message))


def state_of(pod: Pod, *, now: float) -> tuple[PodState, float] | None:
    """Its state, as far as the cluster knows, and since when; None if it has ended."""
    if end_of(pod, now=now) is not None:
        return None
    metadata = pod["metadata"]
    if is_deleted(pod):
        return "ending", _time(metadata["deletionTimestamp"]) or now
    created_at = _time(metadata.get("creationTimestamp")) or now
    if not is_up(pod):
        return "pending", created_at
    for condition in pod["status"].get("conditions", ()):
        # That of its container is its kubelet's word, which a node that is cut off can't change.
        is_unready = condition["type"] == "Ready" and condition["status"] != "True"
        if is_unready and not has_news(pod):
            return "unreachable", _time(condition.get("lastTransitionTime")) or now
    return "running", created_at


def start_trouble(pod: Pod) -> str | None:
    """Why it will not start without help, in its owner's words."""
    statuses = pod.get("status", {})
    for status in (
        *statuses.get("initContainerStatuses", ()),
        *statuses.get("containerStatuses", ()),
    ):
        waiting = status.get("state", {}).get("waiting", {})
        why, message = waiting.get("reason", ""), waiting.get("message", "")
        if why in _IMAGE_TROUBLES:
            return f"The image {status.get('image', '')} can't be pulled ({message or why})."
        if why in _CONFIG_TROUBLES:
            return f"The container can't be made ({message or why})."
    return None


def unscheduled_reason(pod: Pod) -> str | None:
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"No node has room for it now ({condition.get('message', '')})."
    return None


def _recorded_end(terminated: Mapping[str, Any], at: float) -> PodEnd | None:
    """The end that the agent recorded; what it wrote is data, and may be anything."""
    try:
        recorded = json.loads(terminated.get("message", ""))
        reason, ended_at = recorded["reason"], float(recorded["ended_at"])
    except (ValueError, TypeError, KeyError):
        return None
    if reason not in get_args(EndReason):
        return None
    return PodEnd(reason, min(ended_at, at), end_message(reason))


def _words(why: str, message: str) -> str:
    told = f" ({message or why})" if message or why else ""
    return f"It was killed, with its Pod{told}."


def _container(pod: Pod) -> Mapping[str, Any]:
    for status in pod.get("status", {}).get("containerStatuses", ()):
        if status["name"] == CONTAINER:
            found: Mapping[str, Any] = status
            return found
    return {}


def _time(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()

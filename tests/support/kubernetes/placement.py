"""Where the affinities of a Pod, and of those that are there, let it run."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.support.kubernetes.api_server import claims_of

Pod = Mapping[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def allowed(pod: Pod, nodes: Iterable[str], others: Iterable[Pod]) -> set[str]:
    """The names of the nodes, each of which is a host of its own."""
    placed = [
        each
        for each in others
        if "nodeName" in each["spec"] and each["status"]["phase"] not in ("Succeeded", "Failed")
    ]
    found, near = set(nodes), _terms(pod, "podAffinity")
    group = [each for each in placed if all(_matches(term, each) for term in near)]
    # The first of a group, which is near to itself alone, may run anywhere.
    if near and (group or not all(_matches(term, pod) for term in near)):
        found &= {each["spec"]["nodeName"] for each in group}
    for term in _terms(pod, "podAntiAffinity"):
        found -= _hosts(term, placed)
    return found - {
        each["spec"]["nodeName"]
        for each in placed
        if any(_matches(term, pod) for term in _terms(each, "podAntiAffinity"))
    }


def is_attached_elsewhere(claim: str, node: str, pods: Iterable[Pod]) -> bool:
    """As long as a Pod of another node has it."""
    return any(
        claim in claims_of(pod)
        for pod in pods
        if pod["spec"].get("nodeName", node) != node
        and pod["status"]["phase"] not in ("Succeeded", "Failed")
    )


def _terms(pod: Pod, kind: str) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = (
        pod["spec"].get("affinity", {}).get(kind, {}).get(_REQUIRED, [])
    )
    assert all(each["topologyKey"] == "kubernetes.io/hostname" for each in found)
    return found


def _hosts(term: Mapping[str, Any], placed: Iterable[Pod]) -> set[str]:
    return {each["spec"]["nodeName"] for each in placed if _matches(term, each)}


def _matches(term: Mapping[str, Any], pod: Pod) -> bool:
    return all(_answers(term, pod))


def _answers(term: Mapping[str, Any], pod: Pod) -> Iterator[bool]:
    labels = pod["metadata"].get("labels", {})
    for each in term["labelSelector"]["matchExpressions"]:
        if each["operator"] == "Exists":
            yield each["key"] in labels
        else:
            assert each["operator"] == "In"
            yield labels.get(each["key"]) in each["values"]

"""What `kubectl apply -k` would send: resources with their patches, of the kinds that we use."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]


def kustomized(folder: Path) -> list[Object]:
    """Raises KeyError, IndexError or ValueError for a patch that does not fit."""
    [whole] = yaml.safe_load_all((folder / "kustomization.yaml").read_text())
    found: list[Object] = []
    for name in whole["resources"]:
        path = folder / name
        found += kustomized(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
    if namespace := whole.get("namespace"):
        found = [_with_namespace(each, namespace) for each in found]
    for patch in whole.get("patches", ()):
        target = patch["target"]
        chosen = [
            each
            for each in found
            if each["kind"] == target["kind"]
            and each["metadata"]["name"] == target.get("name", each["metadata"]["name"])
        ]
        if not chosen:
            raise ValueError(f"{folder}: nothing is {target}")
        for each in chosen:
            if "path" in patch:
                _merge(each, yaml.safe_load((folder / patch["path"]).read_text()))
            else:
                for operation in yaml.safe_load(patch["patch"]):
                    _operate(each, operation)
    return found


def _with_namespace(found: Object, namespace: str) -> Object:
    return {**found, "metadata": {**found["metadata"], "namespace": namespace}}


def _operate(found: Any, operation: Object) -> None:
    """By RFC 6902."""
    *way, last = operation["path"].lstrip("/").split("/")
    for name in way:
        found = found[int(name)] if isinstance(found, list) else found[name]
    if operation["op"] == "remove":
        del found[last]
    elif isinstance(found, list):
        found.insert(len(found) if last == "-" else int(last), deepcopy(operation["value"]))
    elif operation["op"] == "replace" and last not in found:
        raise KeyError(operation["path"])
    else:
        found[last] = deepcopy(operation["value"])


def _merge(found: Object, patch: Object) -> None:
    """A strategic merge: items of lists are merged by their names."""
    for key, value in patch.items():
        known = found.get(key)
        if isinstance(value, dict) and isinstance(known, dict):
            _merge(known, value)
        elif isinstance(known, list) and value and "name" in value[0]:
            found[key] = _merged(known, value)
        else:
            found[key] = deepcopy(value)


def _merged(known: list[Object], patches: list[Object]) -> list[Object]:
    found = {each["name"]: each for each in known}
    for each in patches:
        if each.get("$patch") == "delete":
            del found[each["name"]]
        elif each["name"] in found:
            _merge(found[each["name"]], each)
        else:
            found[each["name"]] = deepcopy(each)
    return list(found.values())

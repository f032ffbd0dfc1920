"""Runs the steps of `clients/scenarios.json` with the Python client, sync and async."""

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from sandyard_client import AsyncSandbox, Sandbox, SandyardClientError

FILE = Path(__file__).parents[3] / "clients" / "scenarios.json"
SCENARIOS: list[dict[str, Any]] = json.loads(FILE.read_text())


class Runner:
    """`client` is one of either kind; what it answers is awaited where it has to be."""

    def __init__(self, client: Any, known: Mapping[str, Any]) -> None:
        self.client = client
        self.known = dict(known)

    async def run(self, steps: list[dict[str, Any]]) -> None:
        for step in steps:
            await self._run(step)

    async def _run(self, step: Mapping[str, Any]) -> None:
        try:
            answer = await self._called(step)
        except SandyardClientError as error:
            if step.get("fails") not in ("*", getattr(error, "code", None)):
                raise
            return
        assert "fails" not in step, (step, answer)
        self.known[step.get("as", "_")] = answer
        shown = (step, answer)
        if "expect" in step:
            assert matches(answer, self._filled(step["expect"])), shown
        if "contains" in step:
            assert any(matches(each, self._filled(step["contains"])) for each in answer), shown
        if "items" in step:
            items = self._filled(step["items"])
            assert len(answer) == len(items), shown
            assert all(map(matches, answer, items)), shown

    async def _called(self, step: Mapping[str, Any]) -> Any:
        options = self._filled(step.get("with", {}))
        options |= {name: self._filled(step[name]) for name in ("key", "limit") if name in step}
        if step["call"] == "sandbox.create":
            kind: Any = AsyncSandbox if hasattr(self.client, "__aenter__") else Sandbox
            answer: Any = kind.create(client=self.client, **options)
        else:
            method = self.known[step["on"]] if "on" in step else self.client.platform
            for name in step["call"].split("."):
                method = getattr(method, name)
            answer = method(*self._filled(step.get("of", [])), **options)
        if inspect.isawaitable(answer):
            answer = await answer
        if hasattr(answer, "__anext__"):
            return [each async for each in answer]
        return list(answer) if hasattr(answer, "__next__") else answer

    def _filled(self, value: Any) -> Any:
        """With the values of `$names` in it."""
        if isinstance(value, dict):
            return {name: self._filled(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if not isinstance(value, str):
            return value
        if re.fullmatch(r"\$[\w.]+", value):
            return self._found(value.removeprefix("$"))
        return re.sub(r"\$(\w+)", lambda at: str(self.known.get(at[1], at[0])), value)

    def _found(self, path: str) -> Any:
        name, *rest = path.split(".")
        found = self.known[name]
        for each in rest:
            found = found[int(each)] if each.isdigit() else getattr(found, each)
        return found


def matches(answer: Any, expected: Any) -> bool:
    """Whether the answer has what is expected, whatever else it has."""
    if not isinstance(expected, dict):
        return bool(answer == expected)
    if is_dataclass(answer):
        answer = {each.name: getattr(answer, each.name) for each in fields(answer)}
    return all(matches(answer[name], each) for name, each in expected.items())

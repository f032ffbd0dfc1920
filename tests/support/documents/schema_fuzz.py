"""Runs of schemathesis along the API's document.

The engine is driven directly, because the pytest integration takes a server from a fixture on
older versions of pytest only.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import schemathesis
from schemathesis.engine import events, from_schema

SEED = 20
schemathesis.serializer.alias("application/x-tar", "application/octet-stream")


@dataclass(frozen=True, slots=True)
class FuzzRun:
    """What the fuzz found and was answered, by call."""

    breaches: Mapping[str, Sequence[str]]
    answers: Mapping[str, Sequence[schemathesis.Response]]


def fuzz_config(
    url: str, *, max_examples: int, auth: Mapping[str, Any], **sections: Any
) -> schemathesis.Config:
    """The same input at every run; `sections` are further ones of schemathesis' configuration."""
    return schemathesis.Config.from_dict(
        {
            "seed": SEED,
            "base-url": url,
            "request-timeout": 60,
            "generation": {
                "max-examples": max_examples,
                "deterministic": True,
                "database": "none",
                "with-security-parameters": False,
            },
            "auth": {"openapi": auth},
            **sections,
        }
    )


def run_fuzz(*schemas: Any) -> FuzzRun:
    """One run after the other."""
    breaches: dict[str, list[str]] = defaultdict(list)
    answers: dict[str, list[schemathesis.Response]] = defaultdict(list)
    for event in (event for schema in schemas for event in from_schema(schema).execute()):
        if isinstance(event, events.NonFatalError):
            breaches[event.label].append(str(event.value))
        elif isinstance(event, events.FatalError):
            raise event.exception
        elif isinstance(event, events.ScenarioFinished):
            for case_id, interaction in event.recorder.interactions.items():
                call = event.recorder.cases[case_id].value.operation.label
                if interaction.response is not None:
                    answers[call].append(interaction.response)
            for call, breach in _breaches(event):
                breaches[call].append(breach)
    return FuzzRun(breaches, answers)


def _breaches(event: events.ScenarioFinished) -> Iterator[tuple[str, str]]:
    for case_id, checks in event.recorder.checks.items():
        for check in checks:
            if check.failure_info is not None:
                failure, sample = check.failure_info.failure, check.failure_info.code_sample
                call = event.recorder.cases[case_id].value.operation.label
                if check.name == "use_after_free" and call.endswith("/history"):
                    continue  # what happened to a thing stays readable after it is deleted
                yield call, f"{check.name}: {failure.title}\n{failure.message}\n{sample}"

"""Spans of the engines that all parts use."""

from collections.abc import Sequence
from typing import Any

from sandyard.kit.observability.tracing import About


def database(engine: str, part: str) -> About:
    """A part's transactions. One that several calls share is shown in the trace of one of them."""
    return About(
        engine,
        kind="client",
        attributes={"db.system.name": engine, "db.namespace": part},
        calls=frozenset({"read", "write", "run_statement", "hold"}),
    )


def _action(arguments: Sequence[Any]) -> str:
    return f"dynamodb {arguments[0]}"


DYNAMO = About(
    "dynamodb",
    kind="client",
    attributes={"db.system.name": "aws.dynamodb"},
    label=_action,
    calls=frozenset({"call"}),
)

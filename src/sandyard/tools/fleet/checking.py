"""Checks that the server stored every measured reading, exactly once and unchanged."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sandyard.tools.fleet.measuring import Reading


@dataclass(frozen=True, slots=True)
class Difference:
    """A deviation from the expected state."""

    kind: Literal["missing", "doubled", "changed", "unknown", "latest", "answer"]
    hardware_id: str
    detail: str

    def __str__(self) -> str:
        return f"{self.hardware_id} {self.kind}: {self.detail}"


def compare(
    hardware_id: str, measured: Mapping[str, Reading], stored: Sequence[Reading]
) -> Iterator[Difference]:
    """Every difference between a board's readings and those that the server lists."""
    times_listed = Counter(str(reading.get("batch_id")) for reading in stored)
    for batch_id in measured:
        if batch_id not in times_listed:
            yield Difference("missing", hardware_id, batch_id)
    for batch_id, times in times_listed.items():
        if times > 1:
            yield Difference("doubled", hardware_id, f"{batch_id} is there {times} times")
    for reading in stored:
        batch_id = str(reading.get("batch_id"))
        if batch_id not in measured:
            yield Difference("unknown", hardware_id, f"{batch_id} was never measured")
        elif changes := "; ".join(_changes(measured[batch_id], reading)):
            yield Difference("changed", hardware_id, f"{batch_id} {changes}")


def compare_latest(
    hardware_id: str, measured: Mapping[str, Reading], latest: Reading | None
) -> Iterator[Difference]:
    """A difference, unless the latest reading has the greatest time."""
    if latest is None:
        yield Difference("latest", hardware_id, "there is none")
        return
    greatest_ms = max(reading["timestamp_ms"] for reading in measured.values())
    if latest.get("timestamp_ms") != greatest_ms:
        found = f"{latest.get('timestamp_ms')}, not {greatest_ms}"
        yield Difference("latest", hardware_id, f"it is of {found}")
    elif latest not in measured.values():
        yield Difference("latest", hardware_id, "it is not as it was measured")


def _changes(measured: Reading, stored: Reading) -> Iterator[str]:
    for name in sorted(measured.keys() | stored.keys()):
        if name not in stored:
            yield f"has no {name}"
        elif name not in measured:
            yield f"has a new field {name}"
        elif measured[name] != stored[name]:
            yield f"{name} is {stored[name]!r}, was {measured[name]!r}"

"""Simulated boards and an exact server for them."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from sandyard.tools.fleet.board import (
    Batch,
    Board,
    BoardBehavior,
    Measured,
    Reading,
    compare,
    measure,
)

HARDWARE_ID = "02:00:00:00:00:01"
NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000


def measured(count: int = 200, seed: int = 1) -> Measured:
    return measure(HARDWARE_ID, count=count, until_ms=NOW_MS, rng=Random(seed))


def board(count: int = 200, seed: int = 1, **behavior: Any) -> Board:
    return Board(measured(count, seed), behavior=BoardBehavior(**behavior), rng=Random(seed))


def sent_readings(batch: Batch) -> Sequence[Mapping[str, Any]]:
    readings: Sequence[Mapping[str, Any]] = batch.body.get("readings", [batch.body])
    return readings


class ExactServer:
    """Answers as it should, from memory."""

    def __init__(self) -> None:
        self.stored: dict[str, Mapping[str, Any]] = {}
        self.received: list[str] = []

    def take(self, batch: Batch) -> dict[str, Any]:
        acknowledged: list[str] = []
        duplicates: list[str] = []
        for reading in sent_readings(batch):
            batch_id = reading["batch_id"]
            self.received.append(batch_id)
            (duplicates if batch_id in self.stored else acknowledged).append(batch_id)
            self.stored[batch_id] = reading
        return answer(acknowledged=acknowledged, duplicates=duplicates)


def answer(
    acknowledged: Sequence[str] = (),
    duplicates: Sequence[str] = (),
    rejected: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    return {
        "acknowledged_batch_ids": list(acknowledged),
        "duplicate_batch_ids": list(duplicates),
        "rejected": list(rejected),
    }


def send_all(board: Board, *, lost: float = 0.0) -> ExactServer:
    server, rng = ExactServer(), Random(9)
    while batch := board.next_batch():
        reply = server.take(batch)
        if rng.random() < lost:
            board.unanswered(batch)
        else:
            board.answered(batch, reply)
    return server


def first_batch(board: Board) -> Batch:
    batch = board.next_batch()
    assert batch is not None
    return batch


def kinds(stored: Sequence[Reading], of: Measured) -> list[tuple[str, str]]:
    return [(each.kind, each.detail) for each in compare(of.hardware_id, of.readings, stored)]

"""A simulated board that resends acknowledged readings, sends late, and loses responses.

It does no I/O: it returns its next batch, and the caller reports the outcome.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from sandyard.tools.fleet.checking import Difference
from sandyard.tools.fleet.measuring import Boot, Measured, Reading

_USUAL_BATCH = 10


@dataclass(frozen=True, slots=True)
class BoardBehavior:
    """How unreliable a board is; shares are between 0 and 1."""

    batch: int = 100
    """The maximum number of readings per request."""
    duplicates: float = 0.0
    """The share of readings that it sends again after they were acknowledged."""
    reorder: float = 0.0
    """The share of readings that it sends late, after newer ones."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The readings of one request."""

    batch_ids: Sequence[str]
    fresh: int
    """How many of them are sent for the first time."""
    body: Mapping[str, Any]
    reboot: Boot | None
    """Set if the board reboots before it sends this."""


class Board:
    def __init__(self, measured: Measured, *, behavior: BoardBehavior, rng: Random) -> None:
        self.measured = measured
        self.settled: set[str] = set()
        """Readings that the server has accounted for; the board may drop them."""
        self.findings: list[Difference] = []
        """Wrong responses to valid readings."""
        self.repeats = 0
        """How many readings it sends again unnecessarily."""
        self._behavior = behavior
        self._rng = rng
        self._sent: set[str] = set()
        self._rebooted = False
        self._waiting = deque(self._order())

    def _order(self) -> list[str]:
        """The readings ordered by time, except for some late ones."""
        count = len(self.measured.readings)
        positions = {
            batch_id: number + self._rng.uniform(1, max(2, count / 4))
            if self._rng.random() < self._behavior.reorder
            else number
            for number, batch_id in enumerate(self.measured.readings)
        }
        return sorted(positions, key=lambda batch_id: positions[batch_id])

    def next_batch(self) -> Batch | None:
        """What to send now; None if nothing is left."""
        if not self._waiting:
            return None
        size = min(self._size(), len(self._waiting))
        batch_ids = [self._waiting.popleft() for _ in range(size)]
        readings = [self.measured.readings[batch_id] for batch_id in batch_ids]
        fresh = sum(batch_id not in self._sent for batch_id in batch_ids)
        self._sent.update(batch_ids)
        return Batch(batch_ids, fresh, self._body(readings), self._reboot(readings))

    def _reboot(self, readings: Sequence[Reading]) -> Boot | None:
        second = self.measured.boots[1]
        if self._rebooted or all(reading["boot_id"] != second.boot_id for reading in readings):
            return None
        self._rebooted = True
        return second

    def _size(self) -> int:
        """Usually a few, sometimes more, sometimes a full batch, as after a time without radio."""
        roll = self._rng.random()
        if roll < 0.1:
            return self._behavior.batch
        return self._rng.randint(
            1, self._behavior.batch if roll < 0.3 else min(_USUAL_BATCH, self._behavior.batch)
        )

    def _body(self, readings: Sequence[Reading]) -> Mapping[str, Any]:
        bare = [_as_sent(reading) for reading in readings]
        if len(bare) == 1 and self._rng.random() < 0.5:
            return bare[0]
        return {"readings": bare}

    def unanswered(self, batch: Batch) -> None:
        """The outcome is unknown: all readings are sent again, perhaps in other batches."""
        self._waiting.extendleft(reversed(batch.batch_ids))

    def answered(self, batch: Batch, answer: Mapping[str, Any]) -> int:
        """Process the response; each mistake becomes a finding. Returns how many readings it
        settled."""
        acknowledged: Sequence[str] = answer["acknowledged_batch_ids"]
        duplicates: Sequence[str] = answer["duplicate_batch_ids"]
        rejected: Sequence[Mapping[str, Any]] = answer["rejected"]
        for each in rejected:
            self.find(f"{each['batch_id']} was rejected with {each['code']}: {each['message']}")
        for batch_id in acknowledged:
            if batch_id in self.settled:
                self.find(f"{batch_id} was acknowledged as new although it was there")
        accounted = Counter([*acknowledged, *duplicates, *(each["batch_id"] for each in rejected)])
        asked = Counter(batch.batch_ids)
        for batch_id in (asked - accounted) + (accounted - asked):
            self.find(
                f"{batch_id} was sent {asked[batch_id]} times in a request, "
                f"and accounted for {accounted[batch_id]} times"
            )
        newly_settled = [each for each in batch.batch_ids if each not in self.settled]
        self.settled.update(newly_settled)
        self._plan_repeats(newly_settled)
        return len(newly_settled)

    def _plan_repeats(self, batch_ids: Sequence[str]) -> None:
        for batch_id in batch_ids:
            if self._rng.random() < self._behavior.duplicates:
                self.repeats += 1
                self._waiting.insert(self._rng.randint(0, len(self._waiting)), batch_id)

    def find(self, detail: str) -> None:
        self.findings.append(Difference("answer", self.measured.hardware_id, detail))


def _as_sent(reading: Reading) -> dict[str, Any]:
    """Without the name, which the server adds."""
    return {name: value for name, value in reading.items() if name != "friendly_name"}

"""A simulated board: the readings that it has measured, how it sends them (it resends acknowledged
readings, sends late, and loses responses), and whether the server stored them.

It does no I/O: it returns its next batch, and the caller reports the outcome.
"""

import secrets
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any, Literal

Reading = Mapping[str, Any]
"""A reading as in the API, so that measured and stored readings can be compared."""
_LONGEST_MS = 3 * 24 * 3600 * 1000
"""The maximum age of a board's readings: well within every server's retention."""
_INTERVALS_MS = (60_000, 300_000, 3_600_000)
_USUAL_BATCH = 10


@dataclass(frozen=True, slots=True)
class Boot:
    boot_id: str
    firmware_version: str


@dataclass(frozen=True, slots=True)
class Measured:
    """A board with all of its readings, ordered by time; it boots twice."""

    hardware_id: str
    friendly_name: str | None
    boots: tuple[Boot, Boot]
    readings: Mapping[str, Reading]
    """By batch id."""

    def registration(self, boot: Boot) -> dict[str, Any]:
        return {
            "hardware_id": self.hardware_id,
            "boot_id": boot.boot_id,
            "firmware_version": boot.firmware_version,
            "capabilities": {
                "sensors": ["bme280", "soil_moisture"],
                "features": {"offline_buffering": True},
            },
            "friendly_name": self.friendly_name,
        }


def new_hardware_id() -> str:
    """An unused MAC address: random, unicast, locally administered."""
    first, *others = secrets.token_bytes(6)
    return ":".join(f"{byte:02X}" for byte in ((first | 0x02) & 0xFE, *others))


def measure(hardware_id: str, *, count: int, until_ms: int, rng: Random) -> Measured:
    """A board with this many readings, the last at `until_ms` or just before."""
    boots = (Boot(_uuid4(rng), "1.0.16"), Boot(_uuid4(rng), "1.1.0"))
    friendly_name = f"board-{hardware_id[-5:]}" if rng.random() < 0.5 else None
    reboot_at = rng.randrange(count)
    times = _times(count, until_ms=until_ms, rng=rng)
    readings: dict[str, Reading] = {}
    for number, (before, timestamp_ms) in enumerate(pairwise(times)):
        boot = boots[number >= reboot_at]
        batch_id = f"{hardware_id}_{boot.boot_id}_{before}_{timestamp_ms}"
        sensors, status = _sensors(rng)
        readings[batch_id] = {
            "hardware_id": hardware_id,
            "timestamp_ms": timestamp_ms,
            "batch_id": batch_id,
            "boot_id": boot.boot_id,
            "firmware_version": boot.firmware_version,
            "friendly_name": friendly_name,
            "sensors": sensors,
            "sensor_status": status,
        }
    return Measured(hardware_id, friendly_name, boots, readings)


def _times(count: int, *, until_ms: int, rng: Random) -> list[int]:
    """The time of the start and of each reading; occasionally two share a millisecond."""
    interval_ms = max(1, min(rng.choice(_INTERVALS_MS), _LONGEST_MS // count))
    times = [until_ms - count * interval_ms + step * interval_ms for step in range(count + 1)]
    for number in range(2, count + 1, 2):
        if rng.random() < 0.05:
            times[number] = times[number - 1]
    return times


def _sensors(rng: Random) -> tuple[dict[str, float], dict[str, str]]:
    """Values as boards send them: rounded or not, whole, negative, or none from a broken sensor."""
    sensors: dict[str, float] = {
        "bme280_temp_c": round(rng.gauss(12, 15), 1),
        "pressure_hpa": rng.gauss(1013, 9),
    }
    status = {"bme280": "ok", "soil_moisture": "ok" if rng.random() < 0.9 else "error"}
    if status["soil_moisture"] == "ok":
        sensors["soil_moisture_pct"] = rng.randrange(101)
    return sensors, status


def _uuid4(rng: Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


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
    for reading in map(_as_measured, stored):
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
    elif _as_measured(latest) not in measured.values():
        yield Difference("latest", hardware_id, "it is not as it was measured")


def _changes(measured: Reading, stored: Reading) -> Iterator[str]:
    for name in sorted(measured.keys() | stored.keys()):
        if name not in stored:
            yield f"has no {name}"
        elif name not in measured:
            yield f"has a new field {name}"
        elif measured[name] != stored[name]:
            yield f"{name} is {stored[name]!r}, was {measured[name]!r}"


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
        self.confirmed: set[str] = set()
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
        bare = [  # without the name, which the server adds
            {name: value for name, value in reading.items() if name != "friendly_name"}
            for reading in readings
        ]
        if len(bare) == 1 and self._rng.random() < 0.5:
            return bare[0]
        return {"readings": bare}

    def unanswered(self, batch: Batch) -> None:
        """The outcome is unknown: all readings are sent again, perhaps in other batches."""
        self._waiting.extendleft(reversed(batch.batch_ids))

    def answered(self, batch: Batch, answer: Mapping[str, Any]) -> int:
        """Process the response; each mistake becomes a finding. Returns how many readings it
        confirmed."""
        acknowledged: Sequence[str] = answer["acknowledged_batch_ids"]
        duplicates: Sequence[str] = answer["duplicate_batch_ids"]
        rejected: Sequence[Mapping[str, Any]] = answer["rejected"]
        for each in rejected:
            self.find(f"{each['batch_id']} was rejected with {each['code']}: {each['message']}")
        for batch_id in acknowledged:
            if batch_id in self.confirmed:
                self.find(f"{batch_id} was acknowledged as new although it was there")
        accounted = Counter([*acknowledged, *duplicates, *(each["batch_id"] for each in rejected)])
        sent = Counter(batch.batch_ids)
        for batch_id in (sent - accounted) + (accounted - sent):
            self.find(
                f"{batch_id} was sent {sent[batch_id]} times in a request, "
                f"and accounted for {accounted[batch_id]} times"
            )
        newly_confirmed = [each for each in batch.batch_ids if each not in self.confirmed]
        self.confirmed.update(newly_confirmed)
        self._plan_repeats(newly_confirmed)
        return len(newly_confirmed)

    def _plan_repeats(self, batch_ids: Sequence[str]) -> None:
        for batch_id in batch_ids:
            if self._rng.random() < self._behavior.duplicates:
                self.repeats += 1
                self._waiting.insert(self._rng.randint(0, len(self._waiting)), batch_id)

    def find(self, detail: str) -> None:
        self.findings.append(Difference("answer", self.measured.hardware_id, detail))


def _as_measured(stored: Reading) -> Reading:
    """Without the time at which the server received it."""
    return {name: value for name, value in stored.items() if name != "received_at"}

"""Simulated boards and the check of what came of them, without a server."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from sandyard.telemetry.fleet.board import Batch, Board, Habits
from sandyard.telemetry.fleet.checking import compare, compare_latest
from sandyard.telemetry.fleet.measuring import Measured, Reading, measure, new_hardware_id
from sandyard.telemetry.fleet.patience import NoProgressError, Patience, Trouble, wait_before_retry
from sandyard.telemetry.fleet.wire import Failed, ServerRefusedError, Wire
from sandyard.telemetry.intake import is_hardware_id, judge
from sandyard.telemetry.model import Reading as JudgedReading

HARDWARE_ID = "02:00:00:00:00:01"
NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000


def measured(count: int = 200, seed: int = 1) -> Measured:
    return measure(HARDWARE_ID, count=count, until_ms=NOW_MS, rng=Random(seed))


def board(count: int = 200, seed: int = 1, **habits: Any) -> Board:
    return Board(measured(count, seed), habits=Habits(**habits), rng=Random(seed))


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


# What is measured


def test_every_reading_is_one_that_the_server_must_take() -> None:
    device = measured(1000)
    assert len(device.readings) == 1000
    for reading in device.readings.values():
        judged = judge(dict(reading), oldest_ms=NOW_MS - 4 * DAY_MS)
        assert isinstance(judged, JudgedReading), judged


def test_readings_reach_back_days_and_some_are_of_the_same_millisecond() -> None:
    times = [reading["timestamp_ms"] for reading in measured(1000).readings.values()]
    assert times == sorted(times)
    assert NOW_MS - 4 * DAY_MS < times[0] < NOW_MS - DAY_MS / 2
    assert NOW_MS - DAY_MS < times[-1] <= NOW_MS
    assert 900 < len(set(times)) < 1000


def test_a_board_boots_anew_between_its_readings() -> None:
    device = measured(1000)
    assert {reading["boot_id"] for reading in device.readings.values()} == {
        boot.boot_id for boot in device.boots
    }


def test_the_same_seed_measures_the_same() -> None:
    assert measured(seed=3) == measured(seed=3)
    assert measured(seed=3) != measured(seed=4)


def test_hardware_ids_are_new_and_nobody_elses() -> None:
    made = [new_hardware_id() for _ in range(1000)]
    assert len(set(made)) == 1000
    assert all(is_hardware_id(each) for each in made)
    assert {int(each[:2], 16) & 0b11 for each in made} == {0b10}


# How it is sent


def test_a_well_behaved_board_sends_everything_once_and_in_order() -> None:
    well_behaved = board()
    server = send_all(well_behaved)
    assert server.received == list(well_behaved.measured.readings)
    assert well_behaved.settled == set(server.received)
    assert (well_behaved.repeats, well_behaved.findings) == (0, [])


def test_batches_vary_in_size_and_never_pass_the_limit() -> None:
    sender, sizes = board(2000, batch=40), []
    while batch := sender.next_batch():
        sizes.append(len(batch.batch_ids))
        sender.answered(batch, answer(acknowledged=batch.batch_ids))
    assert max(sizes) == 40
    assert len(set(sizes)) > 10


def test_a_single_reading_is_sometimes_sent_bare() -> None:
    sender = board(100, batch=1)
    bodies = [first_batch(sender).body for _ in range(100)]
    assert 20 < sum("readings" in body for body in bodies) < 80


def test_the_share_of_duplicates_is_sent_again_after_it_was_settled() -> None:
    sender = board(2000, duplicates=0.2)
    server = send_all(sender)
    assert 300 < sender.repeats < 500
    assert len(server.received) == 2000 + sender.repeats
    assert set(server.received) == set(sender.measured.readings)
    assert sender.findings == []


def test_the_share_of_reordered_readings_comes_after_newer_ones() -> None:
    sender = board(2000, reorder=0.2)
    received = send_all(sender).received
    times = [sender.measured.readings[each]["timestamp_ms"] for each in received]
    greatest, late = 0, 0
    for time_ms in times:
        late += time_ms < greatest
        greatest = max(greatest, time_ms)
    assert 300 < late < 500
    assert sorted(received) == sorted(sender.measured.readings)


def test_what_was_not_answered_is_sent_again_until_it_is() -> None:
    sender = board(500, duplicates=0.2, reorder=0.2)
    server = send_all(sender, lost=0.4)
    assert server.stored.keys() == sender.settled == set(sender.measured.readings)
    assert len(server.received) > 700
    assert sender.findings == []


def test_only_what_was_never_sent_is_fresh() -> None:
    sender = board(100, batch=1)
    batch = first_batch(sender)
    assert batch.fresh == 1
    sender.unanswered(batch)
    again = first_batch(sender)
    assert (again.batch_ids, again.fresh) == (batch.batch_ids, 0)


def test_a_board_tells_once_that_it_has_booted_again() -> None:
    sender, reboots = board(300, reorder=0.3), []
    while batch := sender.next_batch():
        reboots.append(batch.reboot)
    assert [boot for boot in reboots if boot] == [sender.measured.boots[1]]


# What a wrong answer is


def test_a_rejection_of_a_good_reading_is_a_finding_and_final() -> None:
    sender = board(1)
    batch = first_batch(sender)
    refusal = {"index": 0, "batch_id": batch.batch_ids[0], "code": "TOO_OLD", "message": "Old."}
    sender.answered(batch, answer(rejected=[refusal]))
    [finding] = sender.findings
    assert (finding.kind, finding.hardware_id) == ("answer", HARDWARE_ID)
    assert "TOO_OLD" in finding.detail
    assert sender.next_batch() is None


def test_a_second_acknowledgement_of_a_reading_is_a_finding() -> None:
    sender = board(1, duplicates=1)
    batch = first_batch(sender)
    sender.answered(batch, answer(acknowledged=batch.batch_ids))
    again = first_batch(sender)
    sender.answered(again, answer(acknowledged=batch.batch_ids))
    [finding] = sender.findings
    assert "although it was there" in finding.detail


@pytest.mark.parametrize("told", ["nothing", "twice", "another"])
def test_an_answer_that_does_not_account_for_each_reading_once_is_a_finding(told: str) -> None:
    sender = board(1)
    batch = first_batch(sender)
    [batch_id] = batch.batch_ids
    replies = {
        "nothing": answer(),
        "twice": answer(acknowledged=[batch_id], duplicates=[batch_id]),
        "another": answer(acknowledged=[batch_id, "another"]),
    }
    sender.answered(batch, replies[told])
    [finding] = sender.findings
    assert "accounted for" in finding.detail


# The check


def test_what_is_held_as_it_was_measured_is_no_difference() -> None:
    device = measured()
    newest_first = list(device.readings.values())[::-1]
    assert kinds(newest_first, device) == []
    assert list(compare_latest(HARDWARE_ID, device.readings, newest_first[0])) == []


def test_a_missing_reading_is_found() -> None:
    device = measured()
    lost, *held = device.readings.values()
    assert kinds(held, device) == [("missing", lost["batch_id"])]


def test_a_doubled_reading_is_found() -> None:
    device = measured()
    held = list(device.readings.values())
    assert kinds([*held, held[7]], device) == [
        ("doubled", f"{held[7]['batch_id']} is there 2 times")
    ]


CHANGES: dict[str, Any] = {
    "hardware_id": "02:00:00:00:00:02",
    "timestamp_ms": 1_700_000_000_000,
    "boot_id": "another",
    "firmware_version": "0",
    "friendly_name": "another",
    "sensors": {},
    "sensor_status": {},
}


def test_every_field_but_the_id_itself_is_changed_in_turn() -> None:
    [reading] = measured(1).readings.values()
    assert reading.keys() == {*CHANGES, "batch_id"}


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_reading_is_found(field: str) -> None:
    device = measured()
    first, *others = device.readings.values()
    [(kind, detail)] = kinds([{**first, field: CHANGES[field]}, *others], device)
    assert kind == "changed"
    assert detail.startswith(f"{first['batch_id']} {field} is {CHANGES[field]!r}, was ")


def test_a_value_that_lost_its_last_digit_is_found() -> None:
    device = measured()
    first, *others = device.readings.values()
    sensors = first["sensors"] | {"pressure_hpa": first["sensors"]["pressure_hpa"] + 1e-12}
    assert [kind for kind, _ in kinds([{**first, "sensors": sensors}, *others], device)] == [
        "changed"
    ]


def test_a_field_that_is_gone_or_new_is_found() -> None:
    device = measured(2)
    first, second = device.readings.values()
    without = {name: value for name, value in first.items() if name != "sensors"}
    assert kinds([without, {**second, "extra": 1}], device) == [
        ("changed", f"{first['batch_id']} has no sensors"),
        ("changed", f"{second['batch_id']} has a new field extra"),
    ]


def test_a_reading_that_was_never_measured_is_found() -> None:
    device = measured()
    foreign = {**next(iter(device.readings.values())), "batch_id": "foreign"}
    assert kinds([*device.readings.values(), foreign], device) == [
        ("unknown", "foreign was never measured")
    ]


def test_the_latest_is_of_the_greatest_time_or_a_difference() -> None:
    device = measured()
    by_time = sorted(device.readings.values(), key=lambda reading: int(reading["timestamp_ms"]))
    older = next(each for each in reversed(by_time) if each["timestamp_ms"] < max_time(by_time))
    changed = {**by_time[-1], "sensors": {}}
    for wrong, words in ((older, "it is of"), (changed, "not as it was"), (None, "there is none")):
        [difference] = compare_latest(HARDWARE_ID, device.readings, wrong)
        assert difference.kind == "latest"
        assert words in difference.detail


def max_time(readings: Sequence[Reading]) -> int:
    return max(int(reading["timestamp_ms"]) for reading in readings)


# Patience


def test_waits_double_up_to_a_bound_and_differ() -> None:
    rng = Random(1)
    waits = [[wait_before_retry(failures, rng) for _ in range(50)] for failures in range(12)]
    assert all(0.025 <= wait <= 0.05 for wait in waits[0])
    assert all(0.05 <= wait <= 0.1 for wait in waits[1])
    assert all(1 <= wait <= 2 for wait in waits[-1])
    assert all(len(set(each)) == 50 for each in waits)


async def test_patience_ends_when_nobody_gets_anywhere() -> None:
    patience = Patience(0.1, rng=Random(1))
    patience.last_failure = "503"
    trouble = Trouble(patience)

    async def go_on() -> None:
        for _ in range(20):
            await trouble.wait()

    with pytest.raises(NoProgressError, match="503"):
        await go_on()


async def test_another_boards_progress_keeps_patience_up() -> None:
    patience = Patience(0.1, rng=Random(1))
    stuck, lucky = Trouble(patience), Trouble(patience)
    for _ in range(3):
        await stuck.wait()
        lucky.over()
    await stuck.wait()


# The wire


class SlowServer:
    """Reads a request to its end, works for a moment, and looks who is still there."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") -> None:
        self.bodies: list[bytes] = []
        self.left = 0
        self.answered = 0
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                [length] = re.findall(rb"(?i)content-length: (\d+)", head)
                self.bodies.append(await reader.readexactly(int(length)))
                await asyncio.sleep(0.3)
                if reader.at_eof():
                    self.left += 1
                    return
                writer.write(self._answer)
                self.answered += 1
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def wire_to(server: SlowServer, *, lost_answers: float = 0) -> AsyncIterator[Wire]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    wire = Wire(
        f"http://127.0.0.1:{port}",
        lost_answers=lost_answers,
        patience=Patience(1, rng=Random(1)),
        rng=Random(1),
    )
    try:
        yield wire
    finally:
        await wire.close()
        listener.close()


async def attempt(wire: Wire) -> Any:
    return await wire.attempt("POST", "/data", headers={}, body={"a": 1}, may_get_lost=True)


async def test_half_of_the_lost_answers_come_and_half_are_not_waited_for() -> None:
    server = SlowServer()
    async with wire_to(server, lost_answers=1) as wire:
        outcomes = await asyncio.gather(*(attempt(wire) for _ in range(60)))
        async with asyncio.timeout(10):
            while server.left + server.answered < 60:
                await asyncio.sleep(0.02)
    assert all(isinstance(outcome, Failed) for outcome in outcomes)
    assert wire.tally.answers_lost == wire.tally.requests == 60
    assert server.bodies == [b'{"a":1}'] * 60
    assert server.left + server.answered == 60
    assert 15 <= server.left <= 45


async def test_no_answer_is_lost_unless_it_is_asked_for() -> None:
    async with wire_to(SlowServer()) as wire:
        assert await asyncio.gather(*(attempt(wire) for _ in range(60))) == [{}] * 60
    assert wire.tally.answers_lost == 0


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_server_in_trouble_is_asked_again_when_it_says(status: int) -> None:
    answer = b"HTTP/1.1 %d X\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n" % status
    async with wire_to(SlowServer(answer)) as wire:
        assert await attempt(wire) == Failed(retry_after_sec=7)


@pytest.mark.parametrize("status", [302, 400, 401, 413])
async def test_a_refusal_is_told_with_its_status(status: int) -> None:
    answer = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status
    async with wire_to(SlowServer(answer)) as wire:
        with pytest.raises(ServerRefusedError, match=str(status)):
            await attempt(wire)

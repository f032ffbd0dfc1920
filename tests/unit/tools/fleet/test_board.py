"""How a simulated board sends, and what it takes for a wrong answer."""

import pytest

from tests.unit.tools.fleet.boards import HARDWARE_ID, answer, board, first_batch, send_all

# How it is sent


def test_a_well_behaved_board_sends_everything_once_and_in_order() -> None:
    well_behaved = board()
    server = send_all(well_behaved)
    assert server.received == list(well_behaved.measured.readings)
    assert well_behaved.confirmed == set(server.received)
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


def test_the_share_of_duplicates_is_sent_again_after_it_was_confirmed() -> None:
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
    assert server.stored.keys() == sender.confirmed == set(sender.measured.readings)
    assert len(server.received) > 700
    assert sender.findings == []


def test_only_what_was_never_sent_is_fresh() -> None:
    sender = board(100, batch=1)
    batch = first_batch(sender)
    assert batch.fresh == 1
    sender.unanswered(batch)
    again = first_batch(sender)
    assert (again.batch_ids, again.fresh) == (batch.batch_ids, 0)


def test_a_board_reports_a_reboot_once() -> None:
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

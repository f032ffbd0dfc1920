"""What callers are told of a preview, and what is recorded of it, at the edges."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sandyard.kit.changes.transitions import Cause, state_of
from sandyard.kit.errors import UnavailableError
from sandyard.previews.model import Preview, SandboxInfo, may_be_running
from sandyard.previews.status_model import (
    LAST_KNOWN_FOR,
    RECHECK_AFTER,
    ActionRequired,
    PreviewStatus,
    StatusReport,
    recheck_at,
    record_check,
    report_status,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
AWAY = UnavailableError()
CAUSE = Cause("system", int(NOW.timestamp() * 1000))
INFO = SandboxInfo(
    sandbox_id="sbx-1",
    preview_url="http://preview",
    start_time=NOW - timedelta(minutes=10),
    end_time=NOW + timedelta(minutes=20),
)
CHECKED = NOW - timedelta(minutes=1)
PREVIEW = Preview("prj-1", "100000000001", NOW, INFO, last_checked=CHECKED, sequence=1)


class TestDecide:
    def test_without_a_sandbox_nothing_is_asked_and_none_is_found(self) -> None:
        assert not may_be_running(None, now=NOW)
        told = report_status(replace(PREVIEW, info=None), None, now=NOW)
        assert (told.status, told.action) == (PreviewStatus.NOT_FOUND, ActionRequired.SYNC_NEEDED)
        assert told.info is None

    @pytest.mark.parametrize(("ends_in", "is_asked"), [(TICK, True), (0 * TICK, False)])
    def test_nobody_is_asked_from_the_very_end_on(self, ends_in: timedelta, is_asked: bool) -> None:
        assert may_be_running(replace(INFO, end_time=NOW + ends_in), now=NOW) is is_asked

    def test_what_is_found_runs_until_its_new_end(self) -> None:
        end = NOW + TICK
        told = report_status(PREVIEW, end, now=NOW)
        assert (told.status, told.action) == (PreviewStatus.RUNNING, ActionRequired.NONE)
        assert (told.info, told.last_checked) == (replace(INFO, end_time=end), NOW)
        assert not told.is_stale

    @pytest.mark.parametrize("answer", [NOW, NOW - TICK, None])
    def test_what_is_over_or_gone_has_ended_now(self, answer: datetime | None) -> None:
        told = report_status(PREVIEW, answer, now=NOW)
        assert (told.status, told.action) == (PreviewStatus.EXPIRED, ActionRequired.SYNC_NEEDED)
        assert (told.info, told.last_checked) == (replace(INFO, end_time=NOW), NOW)

    def test_an_end_that_was_known_stays(self) -> None:
        ended = replace(INFO, end_time=NOW - TICK)
        told = report_status(replace(PREVIEW, info=ended), None, now=NOW)
        assert (told.info, told.last_checked) == (ended, NOW)

    def test_trouble_gives_what_was_last_known_for_a_while(self) -> None:
        preview = replace(PREVIEW, last_checked=NOW - LAST_KNOWN_FOR + TICK)
        told = report_status(preview, AWAY, now=NOW)
        assert (told.status, told.action) == (PreviewStatus.RUNNING, ActionRequired.NONE)
        assert (told.info, told.error, told.is_stale) == (INFO, AWAY, True)
        assert told.last_checked == preview.last_checked

    def test_after_that_it_is_unknown_and_never_expired(self) -> None:
        preview = replace(PREVIEW, last_checked=NOW - LAST_KNOWN_FOR)
        told = report_status(preview, AWAY, now=NOW)
        assert (told.status, told.action) == (PreviewStatus.UNKNOWN, ActionRequired.RETRY_LATER)
        assert (told.info, told.error, told.is_stale) == (INFO, AWAY, False)
        assert told.last_checked == preview.last_checked

    def test_what_the_provider_never_told_of_is_known_since_its_start(self) -> None:
        never = replace(PREVIEW, last_checked=None)
        told = report_status(never, AWAY, now=NOW)
        assert (told.status, told.last_checked) == (PreviewStatus.UNKNOWN, INFO.start_time)

    def test_an_estimate_is_replaced_by_what_the_provider_says(self) -> None:
        estimated = replace(PREVIEW, info=replace(INFO, is_estimated=True))
        for answer in (INFO.end_time, None):
            told = report_status(estimated, answer, now=NOW)
            assert told.info is not None
            assert not told.info.is_estimated

    def test_an_end_is_in_the_milliseconds_that_are_stored(self) -> None:
        told = report_status(PREVIEW, None, now=NOW + 1999 * TICK)
        assert told.info is not None
        assert told.info.end_time == NOW + timedelta(milliseconds=1)
        assert SandboxInfo.from_json(told.info.as_json()) == told.info


def checked(info: SandboxInfo, status: PreviewStatus = PreviewStatus.RUNNING) -> StatusReport:
    return StatusReport(status, ActionRequired.NONE, "", info, NOW)


LATER = replace(INFO, end_time=INFO.end_time + TICK)


@pytest.mark.parametrize(
    ("info", "status", "kind"),
    [
        (LATER, PreviewStatus.RUNNING, "preview.extended"),
        (replace(INFO, end_time=NOW), PreviewStatus.EXPIRED, "preview.ended"),
    ],
)
def test_news_of_the_sandbox_is_recorded(
    info: SandboxInfo, status: PreviewStatus, kind: str
) -> None:
    transition = record_check(PREVIEW, checked(info, status), cause=CAUSE)
    assert transition is not None
    assert transition.after == replace(PREVIEW, info=info, sequence=2)
    [event] = transition.events
    assert (event.kind, event.sequence) == (kind, 2)
    assert state_of(transition.result) == {**state_of(PREVIEW), **event.data}


def test_no_news_and_news_of_another_sandbox_is_not_recorded() -> None:
    assert record_check(PREVIEW, checked(INFO), cause=CAUSE) is None
    assert record_check(PREVIEW, checked(replace(LATER, sandbox_id="sbx-2")), cause=CAUSE) is None
    assert record_check(replace(PREVIEW, info=None), checked(LATER), cause=CAUSE) is None


def test_the_same_answer_is_recorded_again_after_a_while() -> None:
    due = replace(checked(INFO), last_checked=CHECKED + RECHECK_AFTER)
    assert recheck_at(PREVIEW, due) == CHECKED + RECHECK_AFTER
    assert recheck_at(PREVIEW, replace(due, last_checked=CHECKED + RECHECK_AFTER - TICK)) is None
    assert recheck_at(replace(PREVIEW, last_checked=None), checked(INFO)) == NOW
    assert recheck_at(PREVIEW, replace(due, error=AWAY)) is None
    assert recheck_at(PREVIEW, replace(due, last_checked=None)) is None

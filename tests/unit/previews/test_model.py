"""The decisions about a preview, at their edges."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sandyard.kit.errors import UnavailableError
from sandyard.kit.events import Effect
from sandyard.kit.transitions import Cause, Transition, state_of
from sandyard.previews.errors import PreviewsLimitError
from sandyard.previews.files import ChangeSet, FileChanges, FileLimits, different_files
from sandyard.previews.model import (
    LAST_KNOWN_FOR,
    RECHECK_AFTER,
    ActionRequired,
    Attempt,
    Gone,
    Preview,
    ProviderUnavailable,
    Quota,
    Running,
    RunningPreviews,
    SandboxInfo,
    Status,
    StatusReport,
    abandon_attempt,
    begin_attempt,
    change_files,
    end,
    may_be_running,
    recheck_at,
    record_check,
    record_files,
    record_sandbox,
    remove,
    report_status,
    shorten_attempt,
    stored_anew,
)

NOW = datetime(2027, 1, 15, 12, tzinfo=UTC)
TICK = timedelta(milliseconds=1)
END = NOW + timedelta(minutes=30)
INFO = SandboxInfo("sbx-1", "https://one", NOW, END, "made")
NEW = Preview("prj-1", "100000000001", NOW)
RUNNING = replace(NEW, info=INFO, last_checked=NOW, sequence=4)
BEING_MADE = replace(NEW, attempt=Attempt("makes", NOW + timedelta(minutes=3)), sequence=2)
LIMITS = FileLimits(files=2, total_bytes=10)
FILES = FileChanges({"c": b"secret"}, {"b"}, NOW)
CAUSE = Cause("account:100000000001", int(NOW.timestamp() * 1000), "why")
NOBODY = Quota(1, RunningPreviews(NEW.account_id, NOW, frozenset()))


def checked(info: SandboxInfo, status: Status = Status.RUNNING) -> StatusReport:
    return StatusReport(status, ActionRequired.NONE, "", info, NOW)


def record(preview: Preview, info: SandboxInfo) -> Transition[Preview] | None:
    return record_sandbox(preview, info, checked_at=NOW, cause=CAUSE)


EXTENDED = checked(replace(INFO, end_time=END + TICK))
ENDED = checked(replace(INFO, end_time=NOW), Status.EXPIRED)
CHANGES = {
    "preview.requested": begin_attempt(RUNNING, Attempt("a", END), quota=NOBODY, cause=CAUSE),
    "preview.created": record(BEING_MADE, replace(INFO, attempt="makes")),
    "preview.abandoned": abandon_attempt(BEING_MADE, "makes", cause=CAUSE),
    "preview.attempt_shortened": shorten_attempt(BEING_MADE, "makes", until=NOW, cause=CAUSE),
    "preview.extended": record_check(RUNNING, EXTENDED, cause=CAUSE),
    "preview.ended": record_check(RUNNING, ENDED, cause=CAUSE),
    "preview.synced": record_files(RUNNING, "sbx-1", version=3, cause=CAUSE),
    "files.changed": change_files(RUNNING, FILES, cause=CAUSE),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_every_change_raises_the_sequence_by_one_and_tells_what_it_changed(kind: str) -> None:
    transition = CHANGES[kind]
    assert transition is not None
    before = transition.before
    assert before is not None
    assert transition.result.sequence == before.sequence + 1
    [event] = transition.events
    assert (event.kind, event.subject, event.account_id) == (kind, "prj-1", NEW.account_id)
    assert (event.actor, event.reason, event.at_ms) == (CAUSE.actor, "why", CAUSE.at_ms)
    assert (event.sequence, event.effect) == (before.sequence + 1, Effect.PARTIAL)
    folded = {**state_of(before), **event.data}
    assert state_of(transition.result).items() <= folded.items()


def test_the_first_change_makes_the_preview_and_counts_from_the_time() -> None:
    for transition in (
        begin_attempt(NEW, Attempt("a", END), quota=NOBODY, cause=CAUSE),
        change_files(NEW, FILES, cause=CAUSE),
    ):
        assert transition.before is None
        assert transition.result.sequence == int(NOW.timestamp())
        [event] = transition.events
        assert (event.effect, event.sequence) == (Effect.FULL, int(NOW.timestamp()))
        assert state_of(transition.result).items() <= event.data.items()


def test_when_the_provider_last_told_is_in_no_event() -> None:
    made = record(BEING_MADE, replace(INFO, attempt="makes"))
    assert made is not None
    assert made.result.last_checked == NOW
    for transition in (made, stored_anew(RUNNING, "preview.migrated", cause=CAUSE)):
        assert "last_checked" not in str(transition.events)


def test_what_is_stored_anew_is_told_as_a_whole() -> None:
    transition = stored_anew(RUNNING, "preview.migrated", cause=CAUSE)
    assert (transition.before, transition.after) == (RUNNING, replace(RUNNING, sequence=5))
    [event] = transition.events
    assert (event.kind, event.effect, event.sequence) == ("preview.migrated", Effect.FULL, 5)
    assert event.data == state_of(RUNNING)


def test_a_removal_leaves_nothing() -> None:
    transition = remove(RUNNING, cause=CAUSE)
    assert (transition.before, transition.after) == (RUNNING, None)
    [event] = transition.events
    assert (event.kind, event.effect, event.sequence) == ("preview.removed", Effect.REMOVED, 5)


def test_what_an_attempt_made_is_recorded_while_it_stands_alone() -> None:
    made = record(BEING_MADE, replace(INFO, attempt="makes"))
    assert made is not None
    info = replace(INFO, attempt="makes")
    assert made.after == replace(BEING_MADE, info=info, attempt=None, last_checked=NOW, sequence=3)
    assert record(BEING_MADE, INFO) is None
    assert record(RUNNING, INFO) is None
    assert abandon_attempt(BEING_MADE, "another", cause=CAUSE) is None
    assert abandon_attempt(RUNNING, "made", cause=CAUSE) is None
    assert shorten_attempt(BEING_MADE, "another", until=NOW, cause=CAUSE) is None
    assert shorten_attempt(RUNNING, "made", until=NOW, cause=CAUSE) is None


def test_an_attempt_is_shortened_never_lengthened() -> None:
    assert BEING_MADE.attempt is not None
    until = BEING_MADE.attempt.until
    for later in (until, until + TICK, END):
        assert shorten_attempt(BEING_MADE, "makes", until=later, cause=CAUSE) is None
    for sooner in (NOW, until - TICK):
        after = shorten_attempt(BEING_MADE, "makes", until=sooner, cause=CAUSE)
        assert after is not None
        assert after.result.attempt == Attempt("makes", sooner)


def test_an_answer_is_recorded_if_it_is_news_of_the_same_sandbox() -> None:
    later = replace(INFO, end_time=END + TICK)
    extended = record_check(RUNNING, checked(later), cause=CAUSE)
    assert extended is not None
    assert extended.after == replace(RUNNING, info=later, sequence=5)
    assert record_check(RUNNING, checked(INFO), cause=CAUSE) is None
    assert record_check(RUNNING, checked(replace(later, sandbox_id="sbx-2")), cause=CAUSE) is None
    assert record_check(NEW, checked(later), cause=CAUSE) is None
    assert record_files(RUNNING, "sbx-2", version=3, cause=CAUSE) is None
    assert record_files(RUNNING, "sbx-1", version=INFO.files_version, cause=CAUSE) is None
    assert record_files(NEW, "sbx-1", version=3, cause=CAUSE) is None


def test_the_same_answer_is_recorded_again_after_a_while() -> None:
    due = replace(checked(INFO), last_checked=NOW + RECHECK_AFTER)
    assert recheck_at(RUNNING, due) == NOW + RECHECK_AFTER
    assert recheck_at(RUNNING, replace(due, last_checked=NOW + RECHECK_AFTER - TICK)) is None
    assert recheck_at(replace(RUNNING, last_checked=None), checked(INFO)) == NOW
    assert recheck_at(RUNNING, replace(due, error=UnavailableError("away"))) is None
    assert recheck_at(NEW, report_status(NEW, None, now=NOW)) is None


def test_the_end_itself_is_past() -> None:
    assert may_be_running(INFO, now=END - TICK)
    assert not may_be_running(INFO, now=END)
    assert not may_be_running(None, now=NOW)
    assert may_be_running(replace(INFO, is_estimated=True), now=END), "only the provider knows"
    assert not may_be_running(replace(INFO, is_estimated=True, sandbox_id=""), now=NOW)
    assert RUNNING.is_running(now=END - TICK)
    assert not RUNNING.is_running(now=END)
    assert not NEW.is_running(now=NOW)


def test_an_attempt_counts_as_running_until_it_is_settled() -> None:
    over = BEING_MADE.attempt
    assert over is not None
    assert BEING_MADE.is_running(now=over.until + timedelta(days=1))
    abandoned = abandon_attempt(BEING_MADE, over.id, cause=CAUSE)
    assert abandoned is not None
    assert abandoned.result.running_until is None
    recorded = record(BEING_MADE, replace(INFO, attempt=over.id))
    assert recorded is not None
    assert recorded.result.running_until == END


def test_what_was_ended_runs_no_more() -> None:
    for preview in (RUNNING, BEING_MADE, replace(RUNNING, attempt=BEING_MADE.attempt)):
        ended = end(preview, at=NOW, cause=CAUSE)
        assert ended is not None
        assert not ended.result.is_running(now=NOW)
        assert [event.kind for event in ended.events] == ["preview.ended"]
        assert end(ended.result, at=NOW, cause=CAUSE) is None
    assert end(RUNNING, at=END, cause=CAUSE) is None
    assert end(NEW, at=NOW, cause=CAUSE) is None


@pytest.mark.parametrize(
    ("age", "status", "is_stale"),
    [
        (LAST_KNOWN_FOR - TICK, Status.RUNNING, True),
        (LAST_KNOWN_FOR, Status.UNKNOWN, False),
    ],
)
def test_a_provider_that_does_not_answer_is_never_an_end(
    age: timedelta, status: Status, is_stale: bool
) -> None:
    away = ProviderUnavailable(UnavailableError("away"))
    report = report_status(RUNNING, away, now=NOW + age)
    assert (report.status, report.is_stale, report.info) == (status, is_stale, INFO)
    assert report.last_checked == NOW


def test_an_estimate_is_replaced_by_what_the_provider_says() -> None:
    estimated = replace(RUNNING, info=replace(INFO, is_estimated=True))
    for answer, status in ((Running(END), Status.RUNNING), (Gone(), Status.EXPIRED)):
        report = report_status(estimated, answer, now=NOW)
        assert report.status is status
        assert report.info is not None
        assert not report.info.is_estimated
    assert report_status(RUNNING, Running(NOW), now=NOW).status is Status.EXPIRED


def test_a_sandbox_comes_back_from_json_as_it_was() -> None:
    for info in (INFO, replace(INFO, is_estimated=True, files_version=3)):
        assert SandboxInfo.from_json(info.as_json()) == info


def test_an_end_is_in_the_milliseconds_that_are_stored() -> None:
    report = report_status(RUNNING, Gone(), now=NOW + timedelta(microseconds=1999))
    assert report.info is not None
    assert report.info.end_time == NOW + TICK
    assert SandboxInfo.from_json(report.info.as_json()) == report.info


def test_the_quota_counts_what_runs_but_the_preview_itself() -> None:
    running = RunningPreviews(NEW.account_id, NOW, frozenset({"prj-1", "prj-2", "prj-3"}))
    Quota(3, running).require("prj-1")
    with pytest.raises(PreviewsLimitError) as refused:
        Quota(2, running).require("prj-1")
    assert refused.value.details == {"limit": 2, "running": 2}
    with pytest.raises(PreviewsLimitError):
        Quota(3, running).require("prj-4")


def test_an_attempt_rests_on_what_else_runs() -> None:
    begun = begin_attempt(NEW, Attempt("a", END), quota=NOBODY, cause=CAUSE)
    assert begun.given == (NOBODY.running,)
    with pytest.raises(PreviewsLimitError):
        begin_attempt(NEW, Attempt("a", END), quota=replace(NOBODY, limit=0), cause=CAUSE)


def test_a_change_set_makes_the_next_version_of_what_is_different() -> None:
    there = {"a": b"1", "b": b"2"}
    changes = ChangeSet({"a": b"1", "c": b"3"}, frozenset({"b", "never-there"}))
    files = different_files(there, changes, limits=LIMITS, now=NOW)
    assert files is not None
    assert (files.written, set(files.deleted)) == ({"c": b"3"}, {"b"})
    after = change_files(RUNNING, files, cause=CAUSE).result
    assert (after.files_version, after.sequence) == (1, 5)
    same = ChangeSet(there, is_whole=True)
    assert different_files(there, same, limits=LIMITS, now=NOW) is None


def test_a_change_of_files_is_told_without_their_contents() -> None:
    [event] = change_files(RUNNING, FILES, cause=CAUSE).events
    assert event.data == {"files_version": 1, "written": 1, "deleted": 1}

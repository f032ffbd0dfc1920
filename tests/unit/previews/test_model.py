"""The decisions about a preview, at their edges."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from sandyard.kit.changes.events import Effect
from sandyard.kit.changes.transitions import Cause, Transition, state_of
from sandyard.previews.errors import PreviewsLimitError
from sandyard.previews.files import FileChanges
from sandyard.previews.model import (
    ESTIMATED_LIFE,
    Attempt,
    Preview,
    Quota,
    RunningPreviews,
    SandboxInfo,
    abandon_attempt,
    begin_attempt,
    change_files,
    end,
    estimate_sandbox,
    iso,
    may_be_running,
    record_files,
    record_sandbox,
    remaining_minutes,
    remove,
    shorten_attempt,
    stored_anew,
    to_milliseconds,
)

NOW = datetime(2027, 1, 15, 12, tzinfo=UTC)
TICK = timedelta(milliseconds=1)
END = NOW + timedelta(minutes=30)
INFO = SandboxInfo("sbx-1", "https://one", NOW, END, "made")
NEW = Preview("prj-1", "100000000001", NOW)
RUNNING = replace(NEW, info=INFO, last_checked=NOW, sequence=4)
BEING_MADE = replace(NEW, attempt=Attempt("makes", NOW + timedelta(minutes=3)), sequence=2)
FILES = FileChanges({"c": b"secret"}, {"b"}, NOW)
CAUSE = Cause("account:100000000001", int(NOW.timestamp() * 1000), "why")
NOBODY = Quota(1, RunningPreviews(NEW.account_id, NOW, frozenset()))


def record(preview: Preview, info: SandboxInfo) -> Transition[Preview] | None:
    return record_sandbox(preview, info, checked_at=NOW, cause=CAUSE)


CHANGES = {
    "preview.requested": begin_attempt(RUNNING, Attempt("a", END), quota=NOBODY, cause=CAUSE),
    "preview.created": record(BEING_MADE, replace(INFO, attempt="makes")),
    "preview.abandoned": abandon_attempt(BEING_MADE, "makes", cause=CAUSE),
    "preview.attempt_shortened": shorten_attempt(BEING_MADE, "makes", until=NOW, cause=CAUSE),
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


def test_files_are_recorded_if_they_are_news_of_the_same_sandbox() -> None:
    assert record_files(RUNNING, "sbx-2", version=3, cause=CAUSE) is None
    assert record_files(RUNNING, "sbx-1", version=INFO.files_version, cause=CAUSE) is None
    assert record_files(NEW, "sbx-1", version=3, cause=CAUSE) is None


def test_an_attempt_is_over_at_its_very_end() -> None:
    attempt = Attempt("makes", END)
    assert not attempt.is_over(END - TICK)
    assert attempt.is_over(END)


@pytest.mark.parametrize(
    ("sandbox_id", "preview_url"),
    [("sbx-1", "https://one"), ("sbx-1", None), (None, "https://one"), ("", "")],
)
def test_what_the_old_columns_tell_of_lived_for_half_an_hour_at_a_guess(
    sandbox_id: str | None, preview_url: str | None
) -> None:
    info = estimate_sandbox(sandbox_id, preview_url, created_at=NOW + TICK / 2)
    assert info == SandboxInfo(
        sandbox_id or "", preview_url or "", NOW, NOW + ESTIMATED_LIFE, is_estimated=True
    )
    assert SandboxInfo.from_json(info.as_json()) == info


def test_empty_columns_tell_of_no_sandbox() -> None:
    assert estimate_sandbox(None, None, created_at=NOW) is None


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


def test_the_quota_counts_what_runs_but_the_preview_itself() -> None:
    running = RunningPreviews(NEW.account_id, NOW, frozenset({"prj-1", "prj-2", "prj-3"}))
    Quota(3, running).require("prj-1")
    assert Quota(3, running).allows("prj-1")
    assert not Quota(3, running).allows("prj-4")
    with pytest.raises(PreviewsLimitError) as refused:
        Quota(2, running).require("prj-1")
    assert refused.value.details == {"limit": 2, "running": 2}
    with pytest.raises(PreviewsLimitError):
        Quota(3, running).require("prj-4")


def test_an_attempt_rests_on_what_else_runs() -> None:
    begun = begin_attempt(NEW, Attempt("a", END), quota=NOBODY, cause=CAUSE)
    assert begun.preconditions == (NOBODY.running,)
    with pytest.raises(PreviewsLimitError):
        begin_attempt(NEW, Attempt("a", END), quota=replace(NOBODY, limit=0), cause=CAUSE)


def test_a_change_of_files_is_told_without_their_contents() -> None:
    [event] = change_files(RUNNING, FILES, cause=CAUSE).events
    assert event.data == {"files_version": 1, "written": 1, "deleted": 1}


@pytest.mark.parametrize(
    ("left", "minutes"),
    [
        (timedelta(minutes=-1), 0),
        (-TICK, 0),
        (timedelta(0), 0),
        (timedelta(seconds=59.999), 0),
        (timedelta(minutes=1) - TICK, 0),
        (timedelta(minutes=1), 1),
        (timedelta(minutes=2) - TICK, 1),
        (timedelta(hours=24), 1440),
    ],
)
def test_whole_minutes_remain(left: timedelta, minutes: int) -> None:
    assert remaining_minutes(NOW + left, now=NOW) == minutes


class TestTimes:
    def test_are_stored_in_utc_with_milliseconds(self) -> None:
        there = timezone(timedelta(hours=2))
        at = datetime(2026, 3, 1, 1, 0, 0, 1999, there)
        assert iso(at) == "2026-02-28T23:00:00.001Z"
        assert iso(NOW) == "2027-01-15T12:00:00.000Z"

    @pytest.mark.parametrize(("micros", "kept"), [(0, 0), (999, 0), (1000, 1000), (1999, 1000)])
    def test_lose_what_is_not_stored(self, micros: int, kept: int) -> None:
        at = NOW.replace(microsecond=micros)
        assert to_milliseconds(at) == NOW.replace(microsecond=kept)
        assert datetime.fromisoformat(iso(at)) == to_milliseconds(at)

    def test_info_comes_back_as_it_was_stored(self) -> None:
        for info in (INFO, replace(INFO, is_estimated=True, files_version=7)):
            assert SandboxInfo.from_json(info.as_json()) == info

    def test_info_of_before_lacks_what_came_later(self) -> None:
        stored = INFO.as_json()
        for name in ("attempt", "files_version"):
            del stored[name]
        assert SandboxInfo.from_json(stored) == replace(INFO, attempt="")

"""Previews decided without any I/O: the instant of an end, and paths and sizes at their limits."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from sandyard.kit.errors import UnavailableError
from sandyard.previews.errors import FileConflictError, FilesLimitError, UnsafeFilePathError
from sandyard.previews.files import ChangeSet, FileLimits, check_changes, check_path
from sandyard.previews.model import (
    LAST_KNOWN_FOR,
    ActionRequired,
    Gone,
    Preview,
    ProviderUnavailable,
    Running,
    SandboxInfo,
    Status,
    iso,
    may_be_running,
    remaining_minutes,
    report_status,
    to_milliseconds,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
AWAY = UnavailableError()
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
        assert (told.status, told.action) == (Status.NOT_FOUND, ActionRequired.SYNC_NEEDED)
        assert told.info is None

    @pytest.mark.parametrize(("ends_in", "is_asked"), [(TICK, True), (0 * TICK, False)])
    def test_nobody_is_asked_from_the_very_end_on(self, ends_in: timedelta, is_asked: bool) -> None:
        assert may_be_running(replace(INFO, end_time=NOW + ends_in), now=NOW) is is_asked

    def test_what_is_found_runs_until_its_new_end(self) -> None:
        end = NOW + TICK
        told = report_status(PREVIEW, Running(end), now=NOW)
        assert (told.status, told.action) == (Status.RUNNING, ActionRequired.NONE)
        assert (told.info, told.last_checked) == (replace(INFO, end_time=end), NOW)
        assert not told.is_stale

    @pytest.mark.parametrize("answer", [Running(NOW), Running(NOW - TICK), Gone(), None])
    def test_what_is_over_or_gone_has_ended_now(self, answer: Running | Gone | None) -> None:
        told = report_status(PREVIEW, answer, now=NOW)
        assert (told.status, told.action) == (Status.EXPIRED, ActionRequired.SYNC_NEEDED)
        assert (told.info, told.last_checked) == (replace(INFO, end_time=NOW), NOW)

    def test_an_end_that_was_known_stays(self) -> None:
        ended = replace(INFO, end_time=NOW - TICK)
        told = report_status(replace(PREVIEW, info=ended), None, now=NOW)
        assert (told.info, told.last_checked) == (ended, NOW)

    def test_trouble_gives_what_was_last_known_for_a_while(self) -> None:
        preview = replace(PREVIEW, last_checked=NOW - LAST_KNOWN_FOR + TICK)
        told = report_status(preview, ProviderUnavailable(AWAY), now=NOW)
        assert (told.status, told.action) == (Status.RUNNING, ActionRequired.NONE)
        assert (told.info, told.error, told.is_stale) == (INFO, AWAY, True)
        assert told.last_checked == preview.last_checked

    def test_after_that_it_is_unknown_and_never_expired(self) -> None:
        preview = replace(PREVIEW, last_checked=NOW - LAST_KNOWN_FOR)
        told = report_status(preview, ProviderUnavailable(AWAY), now=NOW)
        assert (told.status, told.action) == (Status.UNKNOWN, ActionRequired.RETRY_LATER)
        assert (told.info, told.error, told.is_stale) == (INFO, AWAY, False)
        assert told.last_checked == preview.last_checked

    def test_what_the_provider_never_told_of_is_known_since_its_start(self) -> None:
        never = replace(PREVIEW, last_checked=None)
        told = report_status(never, ProviderUnavailable(AWAY), now=NOW)
        assert (told.status, told.last_checked) == (Status.UNKNOWN, INFO.start_time)


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
        assert iso(NOW) == "2026-03-01T12:00:00.000Z"

    @pytest.mark.parametrize(("micros", "kept"), [(0, 0), (999, 0), (1000, 1000), (1999, 1000)])
    def test_lose_what_is_not_stored(self, micros: int, kept: int) -> None:
        at = NOW.replace(microsecond=micros)
        assert to_milliseconds(at) == NOW.replace(microsecond=kept)
        assert datetime.fromisoformat(iso(at)) == to_milliseconds(at)

    def test_info_comes_back_as_it_was_stored(self) -> None:
        info = replace(INFO, attempt="a", files_version=7)
        assert SandboxInfo.from_json(info.as_json()) == info

    def test_info_of_before_lacks_what_came_later(self) -> None:
        stored = INFO.as_json()
        for name in ("attempt", "files_version"):
            del stored[name]
        assert SandboxInfo.from_json(stored) == INFO


LONGEST_PATH = "/".join(["x" * 200] * 2 + ["é" * 55])
"""512 bytes in fewer characters."""


@pytest.mark.parametrize(
    "path",
    ["a", ".env", "a/..b", "…/é", "a b", "x" * 200, "é" * 100, "/".join("a" * 30), LONGEST_PATH],
)
def test_a_path_that_stays_inside_is_taken(path: str) -> None:
    check_path(path)


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/a", "a/", "a//b", ".", "..", "a/./b", "a/../b", "../a", "a\\b"),
        *("x" * 201, "é" * 101, "/".join("a" * 31), LONGEST_PATH + "x"),
        *("a\0", "a\x1f", "a\n", "a\x7f", "a\x9f", "\ud800", "\udfff"),
    ],
)
def test_a_path_that_might_not_is_refused(path: str) -> None:
    with pytest.raises(UnsafeFilePathError):
        check_path(path)


@pytest.mark.parametrize("letter", [" ", "~", "\xa0", "\ud7ff", "\ue000", "😀"])
def test_letters_beside_those_that_are_refused_are_taken(letter: str) -> None:
    check_path(f"a{letter}b")


LIMITS = FileLimits(files=3, total_bytes=10)
THERE = {"a": 4, "b/c": 4}


class TestChanges:
    @pytest.mark.parametrize(
        "changes",
        [
            ChangeSet(),
            ChangeSet({"d": b"12"}),
            ChangeSet({"a": b"123456"}),
            ChangeSet({"d": b"123456"}, frozenset({"a"})),
            ChangeSet({"d": b"1234567890"}, is_whole=True),
            ChangeSet({"b": b""}, frozenset({"b/c"})),
            ChangeSet({"b": b""}, is_whole=True),
            ChangeSet({"bb": b""}),
            ChangeSet({}, frozenset({"not there"})),
        ],
    )
    def test_are_taken_up_to_the_limits(self, changes: ChangeSet) -> None:
        check_changes(changes, THERE, LIMITS)

    @pytest.mark.parametrize(
        ("changes", "after"),
        [
            (ChangeSet({"d": b"123"}), {"files": 3, "bytes": 11}),
            (ChangeSet({"a": b"1234567"}), {"files": 2, "bytes": 11}),
            (ChangeSet({"d": b"", "e": b""}), {"files": 4, "bytes": 8}),
            (ChangeSet({"d": b"1" * 11}, is_whole=True), {"files": 1, "bytes": 11}),
        ],
    )
    def test_are_refused_beyond(self, changes: ChangeSet, after: dict[str, int]) -> None:
        with pytest.raises(FilesLimitError) as refused:
            check_changes(changes, THERE, LIMITS)
        assert refused.value.details == after

    @pytest.mark.parametrize(
        "changes",
        [
            ChangeSet({"a": b""}, frozenset({"a"})),
            ChangeSet({"b": b""}),
            ChangeSet({"a/d": b""}),
            ChangeSet({"d": b"", "d/e/f": b""}, is_whole=True),
        ],
    )
    def test_make_nothing_a_file_and_a_folder_at_once(self, changes: ChangeSet) -> None:
        with pytest.raises(FileConflictError):
            check_changes(changes, THERE, LIMITS)

    @pytest.mark.parametrize("changes", [ChangeSet({"../a": b""}), ChangeSet({}, frozenset({""}))])
    def test_have_safe_paths_only(self, changes: ChangeSet) -> None:
        with pytest.raises(UnsafeFilePathError):
            check_changes(changes, THERE, LIMITS)

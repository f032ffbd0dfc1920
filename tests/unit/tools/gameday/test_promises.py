"""What the answers of a load show of the promises."""

from dataclasses import replace

from sandyard.tools.gameday.model import Promise
from sandyard.tools.gameday.promises import NO_ANSWER, Call, Supply, violations

POOL = [Supply(0.0, 2)]


def claim(track: str, sandbox: str, at: float, *, is_audit: bool = False) -> Call:
    body = f'{{"sandbox_id":"{sandbox}"}}'
    return Call("claim", track, 201, body, sandbox, at, at + 0.1, is_audit=is_audit)


def refusal(track: str, status: int, at: float) -> Call:
    return Call("claim", track, status, "", None, at, at + 0.1)


def broken(*calls: Call, supplies: list[Supply] | None = None) -> list[Promise]:
    return [each.promise for each in violations(calls, supplies or POOL)]


def test_leases_repeats_and_outages_break_nothing() -> None:
    first = claim("a", "1", 0)
    repeat = replace(first, status=200, started_at=1, ended_at=1.1)
    away = [refusal("b", 503, 2), refusal("b", NO_ANSWER, 3), claim("b", "2", 4)]
    mark = Call("mark", "a", 200, "", None, 5, 5.1)
    assert broken(first, repeat, *away, mark) == []


def test_a_sandbox_of_two_tracks_is_seen() -> None:
    assert broken(claim("a", "1", 0), claim("b", "1", 1)) == [Promise.ONE_OWNER]


def test_a_track_with_two_sandboxes_is_seen() -> None:
    assert Promise.ONE_OWNER in broken(claim("a", "1", 0), claim("a", "2", 1))


def test_a_repeat_with_another_body_is_seen() -> None:
    first = claim("a", "1", 0)
    other = replace(first, body="{}", started_at=1, ended_at=1.1)
    assert broken(first, other) == [Promise.SAME_ANSWER]


def test_an_answer_that_did_not_last_is_seen() -> None:
    calls = (claim("a", "1", 0), claim("a", "2", 1, is_audit=True))
    assert Promise.DURABLE in broken(*calls)


def test_409_with_a_free_sandbox_is_seen() -> None:
    assert broken(claim("a", "1", 0), refusal("b", 409, 1)) == [Promise.EMPTY_MEANS_EMPTY]


def test_409_is_right_when_all_are_or_may_be_taken() -> None:
    assert broken(claim("a", "1", 0), claim("b", "2", 0.5), refusal("c", 409, 1)) == []
    assert broken(claim("a", "1", 0), refusal("b", NO_ANSWER, 0.5), refusal("c", 409, 1)) == []


def test_what_was_added_counts_for_claims_that_began_after_it() -> None:
    taken = (claim("a", "1", 0), claim("b", "2", 0))
    added = [*POOL, Supply(2.0, 3)]
    assert broken(*taken, refusal("c", 409, 1.95), supplies=added) == []
    assert broken(*taken, refusal("c", 409, 2.0), supplies=added) == [Promise.EMPTY_MEANS_EMPTY]


def test_other_errors_are_seen() -> None:
    not_found = Call("mark", "a", 404, "SANDBOX_NOT_FOUND", None, 1, 1.1)
    assert broken(refusal("a", 500, 0)) == [Promise.OUTAGE_IS_TOLD]
    assert broken(claim("a", "1", 0), not_found) == [Promise.OUTAGE_IS_TOLD]

"""Which requests the client sends again, and when; flows are driven by hand, without any I/O."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sandyard_client.errors import (
    ConnectionFailedError,
    RateLimitedError,
    UnavailableError,
    UncertainOutcomeError,
    UnexpectedAnswerError,
)
from sandyard_client.retrying import RetryPolicy, delay_before, may_repeat
from sandyard_client.wire import Answer, Lost, Request

from tests.unit.client.scripted import NEVER_SENT, SENT, Script, answer, low

NOW = datetime(2026, 11, 17, 9, 0, tzinfo=UTC)
ONCE = Request("POST", "/once")
SAFE = Request("POST", "/safe", is_repeatable=True)


@pytest.mark.parametrize(
    ("outcome", "safe", "once"),
    [
        (SENT, True, False),
        (NEVER_SENT, True, True),
        (answer(429), True, True),
        (answer(503), True, False),
        (answer(500), True, False),
        (answer(408), True, False),
        (answer(501), False, False),
        (answer(409), False, False),
        (answer(400), False, False),
        (answer(404), False, False),
    ],
)
def test_only_safe_requests_are_repeated(outcome: Answer | Lost, safe: bool, once: bool) -> None:
    assert may_repeat(SAFE, outcome) == safe
    assert may_repeat(ONCE, outcome) == once


def high(_least: float, most: float) -> float:
    return most


def test_delays_double_up_to_a_limit_with_jitter() -> None:
    policy = RetryPolicy(first_delay_sec=1, longest_delay_sec=8)
    longest = [delay_before(n, SENT, policy, now=NOW, draw=high) for n in range(1, 7)]
    assert longest == [1, 2, 4, 8, 8, 8]
    assert delay_before(3, SENT, policy, now=NOW, draw=low) == 2
    assert delay_before(10_000, SENT, policy, now=NOW, draw=high) == 8


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        ("7", 7.0),
        ("Tue, 17 Nov 2026 09:00:20 GMT", 20.0),
        ("Tue, 17 Nov 2026 08:00:00 GMT", 0.0),
        ("soon", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(sent: str, seconds: float | None) -> None:
    assert answer(503, retry_after=sent).retry_after(NOW) == seconds


def test_what_the_server_asks_for_is_waited() -> None:
    asked = answer(429, retry_after="30")
    assert delay_before(1, asked, RetryPolicy(), now=NOW, draw=low) == 30


def test_the_same_request_goes_out_until_it_is_answered() -> None:
    script = Script(SENT, answer(503), NEVER_SENT, answer(200))
    assert script.run(script.calls().call(SAFE)).status == 200
    assert script.sent == [SAFE] * 4


def test_a_wait_that_would_be_too_long_is_not_begun() -> None:
    script = Script(answer(429, retry_after="61"))
    with pytest.raises(RateLimitedError) as refused:
        script.run(script.calls(within_sec=60).call(SAFE))
    assert refused.value.retry_after == 61
    assert script.slept == []


def test_retries_end_in_time_with_the_last_reason() -> None:
    script = Script(*[answer(503)] * 100)
    with pytest.raises(UnavailableError):
        script.run(script.calls(within_sec=5).call(SAFE))
    assert script.now < 5
    assert 3 < len(script.sent) < 20


def test_a_lost_answer_that_may_not_be_asked_for_again_is_uncertain() -> None:
    script = Script(SENT)
    with pytest.raises(UncertainOutcomeError):
        script.run(script.calls().call(ONCE))
    assert script.sent == [ONCE]


def test_a_request_that_was_never_sent_is_a_failed_connection() -> None:
    script = Script(*[NEVER_SENT] * 100)
    with pytest.raises(ConnectionFailedError) as failed:
        script.run(script.calls(within_sec=2).call(ONCE))
    assert not failed.value.was_sent


def test_the_outcome_is_uncertain_if_one_attempt_was_sent() -> None:
    script = Script(SENT, *[NEVER_SENT] * 100)
    with pytest.raises(ConnectionFailedError) as failed:
        script.run(script.calls(within_sec=2).call(SAFE))
    assert failed.value.was_sent


def test_a_refusal_after_a_lost_answer_leaves_it_open_whether_it_was_done() -> None:
    too_long = answer(429, retry_after="61")
    for first, may_be_done in ((SENT, True), (answer(503), True), (NEVER_SENT, False)):
        script = Script(first, too_long)
        with pytest.raises(RateLimitedError) as refused:
            script.run(script.calls(within_sec=60).call(SAFE))
        assert refused.value.may_be_done == may_be_done


def test_on_retry_gets_the_reason_of_each_retry() -> None:
    script = Script(NEVER_SENT, answer(503), answer(200))
    told: list[str] = []
    script.run(replace(script.calls(), on_retry=told.append).call(SAFE))
    assert told == ["refused", "HTTP_503: The server answered 503."]


def test_a_response_without_json_is_an_unexpected_answer() -> None:
    script = Script(Answer(200, {}, b"<html>Welcome to the hotel</html>"))
    with pytest.raises(UnexpectedAnswerError, match="no JSON"):
        script.run(script.calls().json(SAFE))
    moved = Answer(301, {"location": "https://here.example.com/v1"}).error()
    assert "to https://here.example.com/v1" in str(moved)


def test_an_error_has_the_servers_code_and_request_id() -> None:
    body = (
        b'{"error": {"code": "LEASE_TOO_LONG", "message": "m", "request_id": "req_1",'
        b' "details": {"possible_minutes": 3}}}'
    )
    error = Answer(409, {}, body).error()
    assert (error.code, error.request_id, error.details) == (
        "LEASE_TOO_LONG",
        "req_1",
        {"possible_minutes": 3},
    )
    assert Answer(502, {}, b"<html>").error().code == "HTTP_502"

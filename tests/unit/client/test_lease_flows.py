"""When a lease is looked for and given up, and how long it is renewed; without any I/O."""

import json
from datetime import UTC, datetime

import pytest
from sandyard_client.errors import (
    ConfigurationError,
    ConnectionFailedError,
    LeaseLostError,
    RateLimitedError,
)
from sandyard_client.lease_flows import LeaseState, LeaseWish, renew, take
from sandyard_client.models import LeaseAnswer
from sandyard_client.steps import Send, Sleep, advance
from sandyard_client.wire import Answer

from tests.unit.client.scripted import NEVER_SENT, SENT, Script, answer

WISH = LeaseWish("ann", "key")
TOLD_AT = datetime(2026, 11, 17, 9, 0, tzinfo=UTC)
TOO_LONG = answer(429, retry_after="3600")


def lease(sandbox_id: str = "a", minutes: int = 60) -> LeaseState:
    start = int(TOLD_AT.timestamp())
    held = LeaseAnswer(
        sandbox_id=sandbox_id,
        name="n",
        external_id="x",
        allocated_at=start,
        expires_at=start + minutes * 60,
    )
    return LeaseState(held, TOLD_AT)


def told(state: LeaseState) -> Answer:
    held = state.lease
    body = {name: getattr(held, name) for name in ("sandbox_id", "name", "external_id")}
    times = {"allocated_at": held.allocated_at, "expires_at": held.expires_at}
    return Answer(200, {"date": "Tue, 17 Nov 2026 09:00:00 GMT"}, json.dumps(body | times).encode())


def refused(code: str, **details: int) -> Answer:
    body = {"error": {"code": code, "message": "no", "details": details}}
    return Answer(409, {}, json.dumps(body).encode())


def paths(script: Script) -> list[str]:
    return [request.path for request in script.sent]


def test_a_rate_limit_after_a_lost_answer_leaves_no_lease_behind() -> None:
    script = Script(SENT, TOO_LONG, answer(404), told(lease("a")), answer(200))
    with pytest.raises(RateLimitedError):
        script.run(take(script.calls(), WISH, wait_sec=0, on_wait=None))
    assert paths(script)[2:] == ["/v1/queue", "/v1/allocate", "/v1/sandboxes/a/mark-for-deletion"]


@pytest.mark.parametrize(
    ("outcomes", "error"),
    [([TOO_LONG], RateLimitedError), ([NEVER_SENT] * 9, ConnectionFailedError)],
)
def test_no_lost_lease_is_looked_for_after_a_definite_refusal(
    outcomes: list[Answer], error: type[Exception]
) -> None:
    script = Script(*outcomes)
    with pytest.raises(error):
        script.run(take(script.calls(within_sec=2), WISH, wait_sec=0, on_wait=None))
    assert {*paths(script)} == {"/v1/allocate"}


def test_a_request_that_can_not_be_built_is_raised_as_it_is() -> None:
    flow = take(Script().calls(), WISH, wait_sec=0, on_wait=None)
    assert isinstance(advance(flow), Send)
    with pytest.raises(ConfigurationError, match="no token"):
        advance(flow, error=ConfigurationError("no token"))


def test_an_interrupt_at_any_step_gives_up_what_was_taken() -> None:
    flow = take(Script().calls(), WISH, wait_sec=0, on_wait=None)
    advance(flow)
    steps = [advance(flow, error=KeyboardInterrupt())]
    steps += [advance(flow, outcome) for outcome in (answer(404), told(lease("a")))]
    asked = [step.request.path for step in steps if isinstance(step, Send)]
    assert asked == ["/v1/queue", "/v1/allocate", "/v1/sandboxes/a/mark-for-deletion"]
    with pytest.raises(KeyboardInterrupt):
        advance(flow, answer(200))


def test_an_interrupt_before_a_server_was_reached_ends_it_at_once() -> None:
    flow = take(Script().calls(), WISH, wait_sec=0, on_wait=None)
    advance(flow)
    assert isinstance(advance(flow, NEVER_SENT), Sleep)
    with pytest.raises(KeyboardInterrupt):
        advance(flow, error=KeyboardInterrupt())
    flow = take(Script().calls(), WISH, wait_sec=0, on_wait=None)
    advance(flow)
    assert isinstance(advance(flow, SENT), Sleep)
    assert isinstance(advance(flow, error=KeyboardInterrupt()), Send)


def test_the_holder_is_told_at_the_end_of_what_the_server_grants() -> None:
    held = [lease(minutes=60)]
    script = Script(
        refused("LEASE_TOO_LONG", possible_minutes=5),
        told(lease(minutes=20)),
        refused("LEASE_TOO_LONG", possible_minutes=0),
    )
    with pytest.raises(LeaseLostError, match="LEASE_TOO_LONG"):
        script.run(renew(script.calls(), "ann", lambda: held[-1], 15, held.append))
    assert script.slept == [45 * 60, 5 * 60, 15 * 60]
    assert [request.json for request in script.sent] == [
        {"minutes": 15},
        {"minutes": 5},
        {"minutes": 15},
    ]


def test_a_sandbox_that_was_replaced_is_renewed_in_place_of_the_old_one() -> None:
    held = [lease("a", minutes=10)]
    flow = renew(Script().calls(), "ann", lambda: held[-1], 15, held.append)
    advance(flow)
    asked = [advance(flow)]
    held.append(lease("b", minutes=10))
    advance(flow, Answer(403, {}, b'{"error": {"code": "NOT_SANDBOX_OWNER", "message": ""}}'))
    asked.append(advance(flow))
    assert [step.request.path for step in asked if isinstance(step, Send)] == [
        "/v1/sandboxes/a/extend",
        "/v1/sandboxes/b/extend",
    ]

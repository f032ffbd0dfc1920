"""Logins by an operator's token: how many wrong ones are looked at."""

import pytest
from starlette.requests import HTTPConnection

from sandyard.console.operator_logins import OperatorLogins
from sandyard.kit.errors import RateLimitedError, UnauthorizedError
from sandyard.kit.http.client_address import ClientAddress

MOST = 3


@pytest.fixture
def logins() -> OperatorLogins:
    return OperatorLogins(
        ClientAddress(), failures_per_network=f"{MOST} per hour", storage_url="async+memory://"
    )


def request_from(address: str) -> HTTPConnection:
    return HTTPConnection({"type": "http", "headers": [], "client": (address, 1)})


async def fail(logins: OperatorLogins, address: str) -> None:
    with pytest.raises(UnauthorizedError):
        await logins.check(request_from(address), lambda: False)


async def test_after_too_many_wrong_tokens_the_network_is_refused(
    logins: OperatorLogins,
) -> None:
    for _ in range(MOST):
        await fail(logins, "192.0.2.1")
    with pytest.raises(RateLimitedError) as refused:
        await logins.check(request_from("192.0.2.1"), lambda: True)
    assert 0 < (refused.value.retry_after or 0) <= 3600
    await logins.check(request_from("192.0.2.2"), lambda: True)


async def test_addresses_of_one_ipv6_customer_count_together(logins: OperatorLogins) -> None:
    for number in range(MOST):
        await fail(logins, f"2001:db8::{number}")
    with pytest.raises(RateLimitedError):
        await logins.check(request_from("2001:db8::ffff"), lambda: True)


async def test_a_valid_token_resets_the_count_of_failures(logins: OperatorLogins) -> None:
    for _ in range(3):
        for _ in range(MOST - 1):
            await fail(logins, "192.0.2.1")
        await logins.check(request_from("192.0.2.1"), lambda: True)

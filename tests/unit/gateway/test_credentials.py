"""The gateway's credentials in a request: all are found, and none is passed on."""

import pytest

from sandyard.gateway.credentials import (
    Credentials,
    find_credentials,
    sets_cookie,
    without_credentials,
    without_link,
)

COOKIE = b"__Host-sandyard"


def test_credentials_are_found_in_header_link_and_cookie() -> None:
    headers = [(b"cookie", b"a=1"), (b"cookie", COOKIE + b"=c"), (b"x-access-token", b"sat-h")]
    found = find_credentials(headers, b"x=1&sandyard_token=l%2E1")
    assert found == Credentials(header="sat-h", link="l.1", cookie="c")
    assert find_credentials([(b"x-access-token", b"its own")], b"") == Credentials()


def test_two_credentials_of_one_kind_count_as_none() -> None:
    headers = [(b"cookie", COOKIE + b"=a; " + COOKIE + b"=b")]
    assert find_credentials(headers, b"sandyard_token=a&sandyard_token=b") == Credentials(
        link="", cookie=""
    )


@pytest.mark.parametrize(
    ("sent", "passed"),
    [
        ([(b"cookie", COOKIE + b"=c")], []),
        ([(b"cookie", b"a=1; " + COOKIE + b"=c;b=2")], [(b"cookie", b"a=1; b=2")]),
        ([(b"cookie", b"a=" + COOKIE)], [(b"cookie", b"a=" + COOKIE)]),
        ([(b"x-access-token", b"sat-x")], []),
        ([(b"x-access-token", b"own")], [(b"x-access-token", b"own")]),
    ],
)
def test_headers_are_forwarded_without_the_gateways_credentials(
    sent: list[tuple[bytes, bytes]], passed: list[tuple[bytes, bytes]]
) -> None:
    assert without_credentials(sent) == passed


def test_a_query_without_the_link_keeps_everything_else() -> None:
    assert without_link(b"a=%41&sandyard_token=x&b&&c=") == b"a=%41&b&&c="
    assert without_link(b"sandyard_token=x") == b""
    assert without_link(b"q=sandyard_token") == b"q=sandyard_token"


def test_only_a_cookie_of_that_name_is_the_gateways() -> None:
    assert sets_cookie(b"__Host-sandyard=x; Path=/")
    assert sets_cookie(b" __Host-sandyard =x")
    assert not sets_cookie(b"a=__Host-sandyard")

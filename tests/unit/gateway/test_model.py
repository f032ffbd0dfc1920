"""Hosts of sandboxes, and what a grant opens."""

from dataclasses import replace

import pytest

from sandyard.gateway.model import (
    Grant,
    PageScope,
    SandboxDomain,
    TargetHost,
    is_own_origin,
    is_public,
)
from sandyard.kit.clock import utc_time
from tests.fakes.gateway_targets import Box

BOX = "sbx-1m4p7s0v3y6b9e2hk"
LOCAL = SandboxDomain("http", "localhost", 8080)
GRANT = Grant(BOX, "1", 0, frozenset({PageScope.VIEW}), utc_time(1_800_000_000))


@pytest.mark.parametrize(
    ("text", "public_url", "expected"),
    [
        ("localhost", "http://127.0.0.1:8080", LOCAL),
        ("http://localhost:8080", "https://sandyard.example.com", LOCAL),
        ("Box.Example.NET", "https://api.example.com", SandboxDomain("https", "box.example.net")),
        ("x.net:8443", "https://api.example.com", SandboxDomain("https", "x.net", 8443)),
        ("x.net", "https://api.example.com:444", SandboxDomain("https", "x.net", 444)),
        ("https://x.net", "http://api.example.com:444", SandboxDomain("https", "x.net")),
    ],
)
def test_a_domain_takes_what_it_lacks_from_the_public_url(
    text: str, public_url: str, expected: SandboxDomain
) -> None:
    assert SandboxDomain.parse(text, public_url=public_url) == expected


def test_a_host_and_its_url_are_two_forms_of_one_thing() -> None:
    host = LOCAL.find(f"3000-{BOX}.localhost:8080".encode())
    assert host == TargetHost(3000, BOX)
    assert LOCAL.url_of(BOX, 3000) == f"http://3000-{BOX}.localhost:8080/"
    assert SandboxDomain("https", "x.net").url_of(BOX, 80) == f"https://80-{BOX}.x.net/"
    dotted = f"3000-{BOX}.localhost.:8080".encode()
    assert (LOCAL.has(dotted), LOCAL.find(dotted)) == (True, None), "never the console's page"


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "notlocalhost", "", "localhost"])
def test_the_apis_own_hosts_are_not_below_the_domain(host: str) -> None:
    assert not LOCAL.has(host.encode())
    assert LOCAL.find(host.encode()) is None


@pytest.mark.parametrize(
    ("host", "opens"),
    [
        (TargetHost(3000, BOX), True),
        (TargetHost(3000, "sbx-00000000000000000"), False),
    ],
)
def test_a_grant_opens_its_own_target_alone(host: TargetHost, *, opens: bool) -> None:
    assert GRANT.opens(host) is opens


def test_a_grant_for_a_port_or_another_scope_opens_no_more() -> None:
    host = TargetHost(3000, BOX)
    assert replace(GRANT, port=3000).opens(host)
    assert not replace(GRANT, port=3001).opens(host)
    assert not replace(GRANT, scopes=frozenset({PageScope.SYNC})).opens(host)
    assert replace(GRANT, scopes=frozenset({PageScope.SYNC})).allows(PageScope.SYNC, BOX)
    assert not GRANT.allows(PageScope.SYNC, BOX)


def test_only_one_origin_that_is_the_same_is_its_own() -> None:
    own = f"http://3000-{BOX}.localhost:8080"
    assert is_own_origin([own.encode()], own)
    assert not is_own_origin([], own)
    assert not is_own_origin([own.encode(), own.encode()], own)
    assert not is_own_origin([b"null"], own)


def test_a_port_is_public_with_its_sandbox_or_by_itself() -> None:
    one = Box("1", public_ports=(3000,))
    assert [is_public(one, TargetHost(port, BOX)) for port in (3000, 3001)] == [True, False]
    assert is_public(Box("1", is_public=True), TargetHost(3001, BOX))

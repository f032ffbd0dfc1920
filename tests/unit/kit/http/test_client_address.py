"""Where a request comes from: only trusted proxies may speak for another."""

from ipaddress import ip_network

import pytest
from starlette.requests import Request

from sandyard.kit.http.client_address import ClientAddress, network_of

PROXIES = ClientAddress([ip_network("10.0.0.0/8"), ip_network("fd00::/8")])


def request(peer: str | None, *forwarded: str) -> Request:
    headers = [(b"x-forwarded-for", each.encode()) for each in forwarded]
    client = None if peer is None else (peer, 1234)
    return Request({"type": "http", "headers": headers, "client": client})


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", (), "192.0.2.1"),
        ("192.0.2.1", ("198.51.100.9",), "192.0.2.1"),  # not a proxy of ours
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", ("198.51.100.9",), "198.51.100.9"),
        ("10.0.0.1", ("1.1.1.1, 198.51.100.9, 10.2.2.2",), "198.51.100.9"),
        ("10.0.0.1", ("1.1.1.1", "198.51.100.9"), "198.51.100.9"),
        ("10.0.0.1", ("10.0.0.3, 10.0.0.2",), "10.0.0.3"),
        ("10.0.0.1", ("1.1.1.1, nonsense, 10.0.0.2",), "10.0.0.2"),
        ("10.0.0.1", ("nonsense",), "10.0.0.1"),
        ("::ffff:10.0.0.1", ("198.51.100.9:4711",), "198.51.100.9"),
        ("fd00::1", ("[2001:db8::7]:443",), "2001:db8::7"),
        ("fd00::1", ("2001:db8::7",), "2001:db8::7"),
        (None, ("198.51.100.9",), ""),
        ("testclient", ("198.51.100.9",), "testclient"),
    ],
)
def test_the_last_address_that_is_no_trusted_proxy(
    peer: str | None, forwarded: tuple[str, ...], client: str
) -> None:
    assert PROXIES.of(request(peer, *forwarded)) == client


def test_without_proxies_nobody_is_believed() -> None:
    assert ClientAddress().of(request("10.0.0.1", "198.51.100.9")) == "10.0.0.1"


def test_an_ipv6_customer_is_one_whatever_address_he_takes() -> None:
    assert network_of("2001:db8:0:7::1") == network_of("2001:db8:0:7:ffff::9")
    assert network_of("2001:db8:0:7::1") != network_of("2001:db8:0:8::1")
    assert network_of("192.0.2.1") == network_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert network_of("testclient") == "testclient"

"""Which addresses may be connected to."""

from ipaddress import ip_network

import pytest

from sandyard.kit.public_addresses import is_own, is_public, may_connect, networks_of


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "140.82.121.4", "2606:4700::1111", "64:ff9b::101:101"]
)
def test_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "192.0.2.1"),
        *("::", "::1", "fe80::1", "fd00:ec2::254", "ff02::1", "::ffff:10.0.0.1"),
        *("2002:7f00:1::", "64:ff9b::a9fe:a9fe", "2001:0:4136:e378:8000:63bf:f5ff:fffe"),
        *("64:ff9b:1::a9fe:a9fe", "64:ff9b:1:ffff::1", "3fff::1", "fec0::1", "feff::1"),
        *("::7f00:1", "::10.0.0.1", "::1.1.1.1", "::ffff:0:a00:1"),
    ],
)
def test_everything_else_is_not(address: str) -> None:
    assert not is_public(address)


def test_a_private_network_can_be_allowed_by_name() -> None:
    allowed = [ip_network("10.1.0.0/16")]
    assert is_public("10.1.2.3", allowed=allowed)
    assert is_public("::ffff:10.1.2.3", allowed=allowed)
    assert not is_public("10.2.2.3", allowed=allowed)


def test_an_address_of_this_machine_is_told_from_others() -> None:
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.1")


def test_what_is_allowed_may_be_this_machine_too() -> None:
    assert not may_connect("127.0.0.1")
    assert may_connect("127.0.0.1", allowed=networks_of(["127.0.0.0/8"]))

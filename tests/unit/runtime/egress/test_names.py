"""Addresses of names: one each, of a network that is nowhere else, for as many as are used."""

import ipaddress

from sandyard.runtime.egress.names import NameAddresses


def test_each_name_has_an_address_of_its_own() -> None:
    names = NameAddresses()
    addresses = {f"{number}.test": names.address_of(f"{number}.test") for number in range(1000)}
    assert len(set(addresses.values())) == 1000
    network = ipaddress.ip_network("198.18.0.0/15")
    assert all(ipaddress.ip_address(each) in network for each in addresses.values())
    assert {names.name_of(each) for each in addresses.values()} == set(addresses)
    assert names.address_of("7.test") == addresses["7.test"]


def test_endless_names_leave_those_that_are_used() -> None:
    names = NameAddresses()
    used = names.address_of("used.test")
    first = names.address_of("first.test")
    for number in range(200_000):
        names.address_of(f"{number}.test")
        if number % 1000 == 0:
            assert names.name_of(used) == "used.test"
    assert len(names._names) == len(names._addresses) == 8192
    assert names.name_of(first) != "first.test"
    assert names.name_of("198.18.0.1") is None, "the machine's own"


def test_an_address_means_its_old_name_or_none_until_all_others_were_given() -> None:
    names = NameAddresses()
    first = names.address_of("first.test")
    for number in range(100_000):
        names.address_of(f"{number}.test")
    assert names.name_of(first) is None

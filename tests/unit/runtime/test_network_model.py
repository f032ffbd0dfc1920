"""Which hosts each network reaches, and what is told of the others."""

from dataclasses import asdict, replace

import pytest

from sandyard.runtime.network_model import (
    DENIED,
    NO_NETWORK,
    NOT_LISTED,
    EgressCounter,
    EgressPolicy,
    EgressRules,
    Refusal,
    read_report,
    refusal_line,
)

_LISTED = EgressPolicy("packages", ["pypi.org", "*.example.org", "index.local:8443", "[::1]:81"])


@pytest.mark.parametrize(
    ("host", "port"),
    [
        *(("pypi.org", 443), ("pypi.org", 80), ("a.example.org", 443), ("a.b.example.org", 80)),
        *(("index.local", 8443), ("::1", 81)),
    ],
)
def test_the_allow_list_is_reached(host: str, port: int) -> None:
    assert _LISTED.refusal(host, port) is None


@pytest.mark.parametrize(
    "host",
    [
        *("example.org", "xexample.org", "pypi.org.evil.net", "evilpypi.org", "org", ""),
        *("151.101.0.223", "2130706433", "::ffff:127.0.0.1", "index.local.evil"),
    ],
)
def test_nothing_else_is(host: str) -> None:
    assert _LISTED.refusal(host, 443) == NOT_LISTED


@pytest.mark.parametrize(
    ("host", "port"), [("pypi.org", 22), ("pypi.org", 8080), ("index.local", 443)]
)
def test_a_listed_host_has_the_ports_of_its_entry(host: str, port: int) -> None:
    assert _LISTED.refusal(host, port) == f"port {port} is not in the package allow-list"


@pytest.mark.parametrize("port", [22, 80, 443, 1024, 5432, 65535])
def test_the_internet_is_open(port: int) -> None:
    assert EgressPolicy("internet").refusal("example.org", port) is None


@pytest.mark.parametrize("port", [1, 23, 25, 465, 587, 1023])
def test_but_not_its_mail_servers(port: int) -> None:
    assert EgressPolicy("internet").refusal("example.org", port) == f"port {port} is closed"


def test_no_network_reaches_nothing() -> None:
    assert EgressPolicy("none", ["pypi.org"]).refusal("pypi.org", 443) == NO_NETWORK


def test_a_refusal_is_news_once_and_counted_always() -> None:
    counter = EgressCounter()
    assert counter.refuse("a.org", 443, NOT_LISTED, at=1)
    assert not counter.refuse("a.org", 443, NOT_LISTED, at=2)
    report = counter.report("packages")
    [refusal] = report.refusals
    assert (report.refused, refusal.count, refusal.first_at, refusal.last_at) == (2, 2, 1, 2)


def test_of_many_refused_hosts_the_last_are_kept() -> None:
    counter = EgressCounter()
    for number in range(150):
        counter.refuse(f"{number}.org", 443, NOT_LISTED, at=number)
    report = counter.report("packages")
    assert report.refused == 150
    assert [each.host for each in report.refusals] == [f"{number}.org" for number in range(50, 150)]


def test_a_refusal_in_words() -> None:
    line = "blocked: example.org (not in the package allow-list)"
    assert refusal_line("example.org", NOT_LISTED) == line


def a_report() -> dict[str, object]:
    counter = EgressCounter()
    counter.connections = 3
    counter.refuse("example.org", 443, "not in the package allow-list", at=5.0)
    return asdict(counter.report("packages"))


def test_a_report_is_read_as_it_was_told_and_counted_on() -> None:
    report = read_report(a_report(), "packages")
    assert asdict(report) == a_report()
    counter = EgressCounter.of(report)
    assert not counter.refuse("example.org", 443, "not in the package allow-list", at=9.0)
    assert counter.report("packages").refusals[0].count == 2


@pytest.mark.parametrize(
    "lie",
    [
        {"connections": -1},
        {"connections": "many"},
        {"connections": True},
        {"bytes_sent": 1 << 70},
        {"unheard_of": 1},
        {"refusals": None},
        {"refusals": [{"host": "a"}]},
        {"refusals": [Refusal("a", 1, "b", 1, float("nan"), 1.0)]},
        {"refusals": [asdict(Refusal("a", 1, "b", 1, float("nan"), 1.0))]},
        {"refusals": [asdict(Refusal("a" * 501, 1, "b", 1, 1.0, 1.0))]},
        {"refusals": [asdict(Refusal("a", 1, "b", 1, 1.0, 1.0))] * 101},
    ],
)
def test_a_report_that_is_none_is_refused(lie: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no "):
        read_report(a_report() | lie, "packages")


@pytest.mark.parametrize("found", [None, [], "report", {}, 1])
def test_what_has_not_the_form_of_a_report_is_refused(found: object) -> None:
    with pytest.raises(ValueError, match="no report"):
        read_report(found, "packages")


_RULED = EgressRules(allow=["192.0.2.7", "198.51.100.0/24", "a.example", "*.b.example"])
_CLOSED = replace(_RULED, deny=["0.0.0.0/0"])


@pytest.mark.parametrize(
    ("host", "address", "is_allowed"),
    [
        *(("192.0.2.7", "192.0.2.7", True), ("any.example", "198.51.100.9", True)),
        *(("a.example", "203.0.113.1", True), ("x.y.b.example", "2001:db8::1", True)),
        *(("b.example", "203.0.113.1", False), ("192.0.2.8", "192.0.2.8", False)),
        *(("any.example", "203.0.113.1", False), ("any.example", "2001:db8::1", False)),
    ],
)
def test_rules_that_allow_go_before_those_that_deny(
    host: str, address: str, *, is_allowed: bool
) -> None:
    closed = EgressPolicy("internet", rules=_CLOSED)
    assert closed.refusal(host, 443) is None, "by its address, which is not known yet"
    assert closed.refusal_of_address(host, address) == (None if is_allowed else DENIED)
    open_ = EgressPolicy("internet", rules=_RULED)
    assert open_.refusal_of_address(host, address) is None, "nothing is denied"


def test_rules_that_deny_some() -> None:
    rules = EgressRules(deny=["192.0.2.0/24", "2001:db8::/32"])
    some = EgressPolicy("internet", rules=rules)
    assert some.refusal_of_address("a.example", "192.0.2.1") == DENIED
    assert some.refusal_of_address("a.example", "2001:db8::1") == DENIED
    assert some.refusal_of_address("a.example", "198.51.100.1") is None


def test_a_name_that_can_not_be_allowed_is_not_looked_up() -> None:
    names = EgressPolicy("internet", rules=EgressRules(["a.example"], ["0.0.0.0/0"]))
    assert names.refusal("a.example", 443) is None
    assert names.refusal("secret.evil.example", 443) == DENIED
    assert names.refusal_of_address("192.0.2.1", "192.0.2.1") == DENIED

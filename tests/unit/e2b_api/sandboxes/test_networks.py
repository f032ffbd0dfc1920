"""A sandbox's network: which rules are accepted, and how they are described."""

import json
from dataclasses import replace
from typing import Any

import pytest

from sandyard.e2b_api.control import parsed
from sandyard.e2b_api.errors import InvalidRequestError, NotOfferedError
from sandyard.e2b_api.sandboxes.schemas import ALL, RULE, NetworkBody, network_body
from sandyard.platform.sandboxes.secrets_model import Binding
from tests.unit.platform.sandboxes.examples import SANDBOX


def network(**fields: Any) -> NetworkBody:
    return parsed(json.dumps(fields).encode(), NetworkBody)


@pytest.mark.parametrize(
    ("fields", "has_internet", "kind", "allowed", "denied"),
    [
        ({}, True, "internet", [], []),
        ({}, False, "none", [], []),
        ({"denyOut": [ALL]}, True, "none", [], []),
        ({"denyOut": ["10.0.0.0/8"]}, True, "internet", [], ["10.0.0.0/8"]),
        ({"allowOut": ["1.1.1.1"]}, False, "internet", ["1.1.1.1"], [ALL]),
        (
            {"allowOut": ["*.Example.com."], "denyOut": [ALL]},
            True,
            "internet",
            ["*.example.com"],
            [ALL],
        ),
    ],
)
def test_outgoing_rules(
    fields: dict[str, Any], has_internet: bool, kind: str, allowed: list[str], denied: list[str]
) -> None:
    found, rules = network(**fields).outgoing(has_internet=has_internet)
    assert (found, list(rules.allow_out), list(rules.deny_out)) == (kind, allowed, denied)


def test_name_servers_matter_only_for_names() -> None:
    fields = {"denyOut": [ALL], "dnsServers": ["8.8.8.8"]}
    _, rules = network(allowOut=["a.example"], **fields).outgoing(has_internet=True)
    assert rules.dns_servers == ["8.8.8.8"]
    _, rules = network(allowOut=["1.1.1.1"], **fields).outgoing(has_internet=True)
    assert rules.dns_servers is None


def test_names_need_everything_else_to_be_denied() -> None:
    with pytest.raises(InvalidRequestError, match="denyOut"):
        network(allowOut=["a.example"]).outgoing(has_internet=True)


@pytest.mark.parametrize(
    "fields",
    [
        {"allowOut": ["not a name"]},
        {"allowOut": ["1.2.3.4.5"]},
        {"allowOut": "a.example"},
        {"allowOut": ["a"] * 1001},
        {"denyOut": ["a.example"]},
        {"dnsServers": ["::1"]},
        {"dnsServers": ["8.8.8.8/8"]},
        {"dnsServers": ["8.8.8.8"] * 11},
        {"httpsPorts": [49983]},
        {"httpsPorts": [0]},
        {"httpsPorts": [True]},
        {"httpsPorts": ["1"]},
        {"maskRequestHost": "a b"},
        {"maskRequestHost": 1},
    ],
)
def test_invalid_rules_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        network(**fields)


@pytest.mark.parametrize("field", ["egressProxy", "allowIn", "denyIn"])
def test_rules_that_can_t_be_enforced_are_refused(field: str) -> None:
    with pytest.raises(NotOfferedError, match=field):
        network(**{field: ["a"]})


def test_a_network_is_described_as_requested() -> None:
    sent = network(
        allowOut=["1.1.1.1"],
        denyOut=[ALL],
        httpsPorts=[8443],
        maskRequestHost="app:${PORT}",
        allowPublicTraffic=False,
    )
    kind, rules = sent.outgoing(has_internet=True)
    recorded = replace(rules, **sent.incoming()).recorded()
    sandbox = replace(SANDBOX, network=kind, traffic_rules=recorded, is_public=False)
    assert network_body(sandbox) == {
        "allowPublicTraffic": False,
        "allowOut": ["1.1.1.1"],
        "denyOut": [ALL],
        "httpsPorts": [8443],
        "maskRequestHost": "app:${PORT}",
    }
    closed = replace(SANDBOX, network="none", traffic_rules=None)
    assert network_body(closed)["denyOut"] == [ALL]


def test_headers_of_rules_are_secrets_of_their_host() -> None:
    rules = {
        "API.example.com": [
            {"transform": {"headers": {"Authorization": "Bearer a", "X-Key": "b"}}},
            {"transform": {"headers": {"x-key": "c"}}},
        ],
        "*.example.org": [{}],
    }
    found = network(rules=rules).bound_headers()
    told = [(each.name, each.value, each.binding) for each in found]
    assert told == [
        (f"{RULE}1", "Bearer a", Binding(("api.example.com",), sets_header="Authorization")),
        (f"{RULE}2", "c", Binding(("api.example.com",), sets_header="x-key")),
    ]
    assert "Bearer a" not in repr(found)


@pytest.mark.parametrize(
    "rules",
    [
        {"192.0.2.0/24": []},
        {"a b": []},
        {"a.example": [{"transform": {"headers": {"X": "a\r\nY: b"}}}]},
        {"a.example": [{"transform": {"headers": {"X y": "a"}}}]},
    ],
)
def test_rules_that_set_no_valid_header_are_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        network(rules=rules)


def test_rules_with_other_transforms_are_refused() -> None:
    with pytest.raises(NotOfferedError, match="iam"):
        network(rules={"a.example": [{"transform": {"iam": {"a": "b"}}}]})

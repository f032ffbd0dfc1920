"""A sandbox's network in E2B's API: parsing, validating and describing it."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sandyard.e2b_api.errors import NotJsonError, NotOfferedError
from sandyard.e2b_api.hosts import ENVD_PORT
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.network.traffic_rules import TrafficRules
from sandyard.runtime.network_model import EVERYTHING, Network

ALL = "0.0.0.0/0"
_NOT_OFFERED = ("rules", "egressProxy", "allowIn", "denyIn")
_NAME = re.compile(
    r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
)
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:(\d{1,5}|\$\{PORT\}))?")
_MOST_RULES, _MOST_SERVERS, _LAST_PORT = 1000, 10, 65535


def network_of(sent: Mapping[str, Any], *, has_internet: bool) -> tuple[Network, TrafficRules]:
    """The outgoing rules. Rules that can't be enforced are refused rather than ignored. Raises
    NotJsonError, NotOfferedError."""
    for name in _NOT_OFFERED:
        if sent.get(name):
            raise NotOfferedError(f"This server does not offer `network.{name}` of E2B's API.")
    allowed = [_allowed(each) for each in _texts(sent, "allowOut")]
    denied = [_network(each, "denyOut") for each in _texts(sent, "denyOut")]
    denied += [] if has_internet or ALL in denied else [ALL]
    names = [each for each in allowed if not _is_network(each)]
    is_closed = not EVERYTHING.isdisjoint(denied)
    if names and not is_closed:
        raise NotJsonError(f"If `allowOut` has names, `denyOut` must have {ALL}.")
    if is_closed and not allowed:
        return "none", TrafficRules()
    servers = _servers(sent) if names else None
    return "internet", TrafficRules(allowed, denied, servers)


def ports_of(sent: Mapping[str, Any], rules: TrafficRules) -> TrafficRules:
    """Adds the incoming rules. Raises NotJsonError."""
    ports = sent.get("httpsPorts") or []
    if not isinstance(ports, list) or not all(_is_port(each) for each in ports):
        raise NotJsonError(f"`httpsPorts` must be ports other than {ENVD_PORT}.")
    mask = sent.get("maskRequestHost")
    if mask is not None and not (isinstance(mask, str) and _HOST.fullmatch(mask)):
        raise NotJsonError("`maskRequestHost` must be a host, optionally with `:${PORT}`.")
    return replace(
        rules,
        mask_request_host=mask or None,
        https_ports=ports,
        tells_of_token=sent.get("allowPublicTraffic") is False,
    )


def network_body(sandbox: Sandbox) -> dict[str, Any]:
    """As requested."""
    rules = TrafficRules.of(sandbox)
    denied = [ALL] if sandbox.network == "none" else list(rules.deny_out)
    body: dict[str, Any] = {
        "allowPublicTraffic": sandbox.is_public,
        "allowOut": list(rules.allow_out),
        "denyOut": denied,
        "httpsPorts": list(rules.https_ports),
        "dnsServers": None if rules.dns_servers is None else list(rules.dns_servers),
        "maskRequestHost": rules.mask_request_host,
    }
    return {name: value for name, value in body.items() if value not in (None, [])}


def _texts(sent: Mapping[str, Any], name: str) -> Sequence[str]:
    found = sent.get(name) or []
    is_good = isinstance(found, list) and all(isinstance(each, str) for each in found)
    if not is_good or len(found) > _MOST_RULES:
        raise NotJsonError(f"`{name}` must be at most {_MOST_RULES} strings.")
    return found


def _allowed(text: str) -> str:
    if _is_network(text):
        return text
    name = text.lower().removesuffix(".")
    if not _NAME.fullmatch(name) or re.fullmatch(r"[\d.]+(/\d+)?", name):
        raise NotJsonError(f"'{text[:64]}' is not an address, network or name.")
    return name


def _network(text: str, name: str) -> str:
    if not _is_network(text):
        raise NotJsonError(f"'{text[:64]}' in `{name}` is not an address or network.")
    return text


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _servers(sent: Mapping[str, Any]) -> Sequence[str] | None:
    if sent.get("dnsServers") is None:
        return None
    found = [_network(each, "dnsServers") for each in _texts(sent, "dnsServers")]
    if len(found) > _MOST_SERVERS or any(":" in each or "/" in each for each in found):
        raise NotJsonError(f"`dnsServers` must be at most {_MOST_SERVERS} IPv4 addresses.")
    return found


def _is_port(found: object) -> bool:
    is_number = isinstance(found, int) and not isinstance(found, bool)
    return is_number and 1 <= found <= _LAST_PORT and found != ENVD_PORT  # type: ignore[operator]

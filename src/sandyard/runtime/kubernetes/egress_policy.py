"""What a Pod reaches, as its annotations tell the egress proxy: for each token, by its digest, a
network and rules. Pure functions."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from sandyard.runtime.network_model import (
    NO_RULES,
    EgressPolicy,
    EgressReport,
    EgressRules,
    Network,
)

OWN, OF_CLONE = "sandyard.dev/egress", "sandyard.dev/egress-of-clone"
"""The annotations: of the Pod's programs, and of a clone for as long as it runs."""
_AUTHORIZATION = b"proxy-authorization:"
_NO_PROXY = "localhost,127.0.0.1,127.0.0.0/8,0.0.0.0,::1"


@dataclass(frozen=True, slots=True)
class Credentials:
    pod: str
    token: str

    @property
    def digest(self) -> str:
        return sha256(self.token.encode()).hexdigest()

    def url(self, address: str) -> str:
        return f"http://{self.pod}:{self.token}@{address}"

    def header(self) -> str:
        return f"Basic {base64.b64encode(f'{self.pod}:{self.token}'.encode()).decode()}"


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """What the operator allows all Pods of a namespace."""

    hosts: Sequence[str] = ()
    networks: Sequence[str] = ()
    clone_networks: Sequence[str] = ()
    """More private networks, from which templates may be cloned."""


def credentials_of(url: str) -> Credentials:
    parts = urlsplit(url)
    return Credentials(parts.username or "", parts.password or "")


def credentials_in(head: bytes) -> Credentials | None:
    """Those in the head of a request to the proxy."""
    for line in head.split(b"\r\n"):
        if line[: len(_AUTHORIZATION)].lower() == _AUTHORIZATION:
            scheme, _, encoded = line[len(_AUTHORIZATION) :].strip().partition(b" ")
            try:
                pod, _, token = base64.b64decode(encoded, validate=True).decode().partition(":")
            except ValueError:
                return None
            return Credentials(pod, token) if scheme.lower() == b"basic" else None
    return None


def annotation(
    credentials: Credentials, network: Network, rules: EgressRules = NO_RULES
) -> dict[str, Any]:
    return {"digest": credentials.digest, "network": network, "rules": asdict(rules)}


def policy_of(pod: Mapping[str, Any], digest: str, settings: ProxySettings) -> EgressPolicy | None:
    """The policy of the token with this digest; None if the Pod has no such token."""
    for name in (OWN, OF_CLONE):
        found = json.loads(pod["metadata"]["annotations"].get(name, "{}"))
        if found.get("digest") == digest:
            more = settings.clone_networks if name == OF_CLONE else ()
            rules = EgressRules.of(found["rules"])
            return EgressPolicy(
                found["network"], settings.hosts, (*settings.networks, *more), rules
            )
    return None


def environment(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The variables by which programs find the proxy, whose URL is this value."""
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    others = {"no_proxy": _NO_PROXY, "NO_PROXY": _NO_PROXY, "NODE_USE_ENV_PROXY": "1"}
    return [
        *({"name": name, **value} for name in names),
        *({"name": name, "value": each} for name, each in others.items()),
    ]


def summed(network: Network, reports: Sequence[EgressReport]) -> EgressReport:
    """Of all proxies that served a Pod."""
    return EgressReport(
        network,
        sum(each.connections for each in reports),
        sum(each.refused for each in reports),
        sum(each.bytes_sent for each in reports),
        sum(each.bytes_received for each in reports),
        sorted((one for each in reports for one in each.refusals), key=lambda one: one.last_at),
    )

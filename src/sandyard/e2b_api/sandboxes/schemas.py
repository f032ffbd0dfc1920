"""Bodies and queries of the calls about sandboxes."""

import ipaddress
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from sandyard.e2b_api.control import Body, NoEffect, Number, PageQuery, Query, Refused, Texts
from sandyard.e2b_api.errors import InvalidRequestError
from sandyard.e2b_api.hosts import ENVD_PORT
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.network.traffic_rules import TrafficRules
from sandyard.platform.sandboxes.secrets_model import Binding, SecretVariable
from sandyard.platform.volumes.model import (
    MOUNT_POINT,
    VOLUME_NAME,
    require_apart,
    require_mount_point,
)
from sandyard.runtime.network_model import EVERYTHING, Network

ALL = "0.0.0.0/0"
MOST_FORKS = 100
_NAME = re.compile(
    r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
)
_HOST = r"^[A-Za-z0-9.-]{1,253}(:(\d{1,5}|\$\{PORT\}))?$"
_YEAR_10000 = 253_402_300_800
"""In seconds since 1970: the first second beyond the range of `datetime`."""
State = Literal["running", "paused"]
BOTH: frozenset[State] = frozenset({"running", "paused"})


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _network(text: str) -> str:
    if not _is_network(text):
        raise ValueError(f"'{text[:64]}' is not an address or network")
    return text


def _allowed(text: str) -> str:
    if _is_network(text):
        return text
    name = text.lower().removesuffix(".")
    if not _NAME.fullmatch(name) or re.fullmatch(r"[\d.]+(/\d+)?", name):
        raise ValueError(f"'{text[:64]}' is not an address, network or name")
    return name


def _server(text: str) -> str:
    if not _is_network(text) or ":" in text or "/" in text:
        raise ValueError(f"'{text[:64]}' is not an IPv4 address")
    return text


def _ruled(host: str) -> str:
    if _is_network(name := _allowed(host)):
        raise ValueError("a rule that sets headers is for a name")
    return name


def _port(number: int) -> int:
    if number == ENVD_PORT:
        raise ValueError(f"{ENVD_PORT} is the port of the sandbox's own API")
    return number


Allowed = Annotated[str, AfterValidator(_allowed)]
Denied = Annotated[str, AfterValidator(_network)]
NameServer = Annotated[str, AfterValidator(_server)]
RuledHost = Annotated[str, AfterValidator(_ruled), Field(max_length=253)]
HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$")]
HeaderValue = Annotated[str, Field(pattern=r"^[!-~]([ -~]*[!-~])?$", max_length=8192)]
Port = Annotated[int, Field(ge=1, le=65535), AfterValidator(_port)]


class Transform(Body):
    headers: dict[HeaderName, HeaderValue] = Field(default={}, max_length=20)
    iam: Refused = None


class Rule(Body):
    transform: Transform | None = None


RULE = "E2B_NETWORK_RULE_"
"""Begins the names of the variables in which headers of rules are stored."""


class NetworkBody(Body):
    """Rules that can't be enforced are refused rather than ignored."""

    allow_out: list[Allowed] | None = Field(default=None, max_length=1000)
    deny_out: list[Denied] | None = Field(default=None, max_length=1000)
    dns_servers: list[NameServer] | None = Field(default=None, max_length=10)
    https_ports: list[Port] | None = None
    mask_request_host: Annotated[str, Field(pattern=_HOST)] | None = None
    allow_public_traffic: bool | None = None
    rules: dict[RuledHost, list[Rule]] | None = Field(default=None, max_length=20)
    egress_proxy: Refused = None
    allow_in: Refused = None
    deny_in: Refused = None

    def outgoing(self, *, has_internet: bool) -> tuple[Network, TrafficRules]:
        """Raises InvalidRequestError."""
        allowed, denied = list(self.allow_out or ()), list(self.deny_out or ())
        denied += [] if has_internet or ALL in denied else [ALL]
        has_names = not all(map(_is_network, allowed))
        is_closed = not EVERYTHING.isdisjoint(denied)
        if has_names and not is_closed:
            raise InvalidRequestError(f"If `allowOut` has names, `denyOut` must have {ALL}.")
        if is_closed and not allowed:
            return "none", TrafficRules()
        return "internet", TrafficRules(allowed, denied, self.dns_servers if has_names else None)

    def bound_headers(self) -> list[SecretVariable]:
        """The headers that its rules set, as secrets that are bound to hosts."""
        set_by_rules = {
            (host, name.lower()): (name, value)
            for host, rules in (self.rules or {}).items()
            for rule in rules
            for name, value in (rule.transform.headers if rule.transform else {}).items()
        }
        return [
            SecretVariable(f"{RULE}{number}", value, Binding((host,), sets_header=name))
            for number, ((host, _), (name, value)) in enumerate(set_by_rules.items(), 1)
        ]

    def incoming(self) -> dict[str, Any]:
        """Fields of the `TrafficRules`."""
        return {
            "mask_request_host": self.mask_request_host,
            "https_ports": self.https_ports or [],
            "tells_of_token": self.allow_public_traffic is False,
        }


def network_body(sandbox: Sandbox) -> dict[str, Any]:
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


class TimeoutBody(Body):
    timeout: Number | None = None


class ConnectBody(TimeoutBody):
    memory: bool | None = None
    auto_pause: NoEffect = None


class PauseBody(Body):
    memory: bool | None = None
    require_healthy_guest: NoEffect = None


class RefreshBody(Body):
    duration: Number | None = None


class AutoResume(Body):
    enabled: bool = False


VolumeName = Annotated[str, Field(pattern=VOLUME_NAME)]


class VolumeMount(Body):
    name: VolumeName
    path: Annotated[str, Field(pattern=MOUNT_POINT), AfterValidator(require_mount_point)]
    read_only: bool = False


VolumeMounts = Annotated[list[VolumeMount], Field(max_length=16), AfterValidator(require_apart)]


class NewSandboxBody(TimeoutBody):
    template: str = Field(alias="templateID", min_length=1)
    metadata: Texts | None = None
    env_vars: Texts | None = None
    auto_pause: bool | None = None
    auto_resume: AutoResume | None = None
    network: NetworkBody | None = None
    allow_internet_access: bool | None = Field(default=None, alias="allow_internet_access")
    auto_pause_memory: bool | None = None
    secure: NoEffect = None
    iam: Refused = None
    mcp: Refused = None
    volume_mounts: VolumeMounts | None = None

    @property
    def is_public(self) -> bool:
        return self.network is None or self.network.allow_public_traffic is not False

    def bound_headers(self) -> list[SecretVariable]:
        return [] if self.network is None else self.network.bound_headers()

    def traffic(self) -> tuple[Network, TrafficRules]:
        """Raises InvalidRequestError."""
        sent = self.network or NetworkBody()
        network, rules = sent.outgoing(has_internet=self.allow_internet_access is not False)
        return network, replace(rules, **sent.incoming())


class NewSnapshotBody(Body):
    name: str | None = None
    memory: bool | None = None


class ForkBody(TimeoutBody):
    count: int = Field(default=1, ge=1, le=MOST_FORKS)


class SnapshotQuery(PageQuery):
    sandbox_id: str | None = Field(default=None, alias="sandboxID")
    name: str | None = None


class NewNetworkBody(NetworkBody):
    allow_internet_access: bool | None = Field(default=None, alias="allow_internet_access")


def _with_zone(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _split(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value


class ListQuery(PageQuery):
    state: Annotated[frozenset[State], BeforeValidator(_split)] = BOTH
    metadata: str = ""
    template: str | None = None
    order: Literal["asc", "desc"] = "desc"
    started_after: Annotated[datetime, AfterValidator(_with_zone)] | None = None


class MetricsQuery(Query):
    """In Unix seconds."""

    start: float | None = Field(default=None, ge=0, lt=_YEAR_10000)
    end: float | None = Field(default=None, ge=0, lt=_YEAR_10000)


class AllMetricsQuery(Query):
    names: Annotated[list[str], BeforeValidator(_split)] = Field(default=[], alias="sandbox_ids")

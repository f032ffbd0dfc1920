"""Which hosts a machine may reach, and the reasons for refusals."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sandyard.kit.public_addresses import is_allowed, networks_of

Network = Literal["none", "packages", "internet"]
"""What a machine reaches: nothing; the hosts of packages and repositories; all public hosts."""

_WEB_PORTS = frozenset({80, 443})
_SSH_PORT = 22
_FIRST_UNPRIVILEGED_PORT = 1024
_MOST_REFUSALS = 100
MOST_SECRETS = 500
"""Of one machine, since its start."""
_LARGEST = 1 << 62
_LONGEST = 500

NO_NETWORK = "this sandbox has no network"
NOT_LISTED = "not in the package allow-list"
PRIVATE = "its address is private"
OTHER_HOST = "TLS or HTTP there named another host"
ONLY_TLS = "a secret is bound to it: only TLS to its own name"
DENIED = "denied by a rule of this sandbox"
EVERYTHING = frozenset({"0.0.0.0/0", "::/0"})


@dataclass(frozen=True, slots=True)
class EgressRules:
    """What a machine may reach of the internet. `allow` overrides `deny`; anything in neither may
    be reached."""

    allow: Sequence[str] = ()
    """Addresses, networks (`192.0.2.0/24`), names, `*.name` for all subdomains."""
    deny: Sequence[str] = ()
    """Addresses and networks; `0.0.0.0/0` is everything."""

    @classmethod
    def of(cls, rules: Mapping[str, Sequence[str]]) -> "EgressRules":
        return cls(tuple(rules.get("allow", ())), tuple(rules.get("deny", ())))

    @property
    def denies_all(self) -> bool:
        return not EVERYTHING.isdisjoint(self.deny)

    @property
    def are_by_name(self) -> bool:
        """Whether a name may be reached at an address that other names may not."""
        return bool(self.deny) and not all(_is_network(each) for each in self.allow)

    def refusal_of_name(self, host: str) -> str | None:
        """By name only: a name that can't be allowed is not resolved either."""
        if not self.denies_all or is_address(host) or self._allows_name(host):
            return None
        has_networks = any(map(_is_network, self.allow))
        return None if has_networks else DENIED

    def refusal_of_address(self, host: str, address: str) -> str | None:
        allowed = [each for each in self.allow if _is_network(each)]
        if self._allows_name(host) or is_allowed(address, networks_of(allowed)):
            return None
        denied = [each for each in self.deny if each not in EVERYTHING]
        is_denied = self.denies_all or is_allowed(address, networks_of(denied))
        return DENIED if is_denied else None

    def _allows_name(self, host: str) -> bool:
        return any(_matches(each, host) for each in self.allow if not is_address(each))


NO_RULES = EgressRules()


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    network: Network
    hosts: Sequence[str] = ()
    """The allow-list of `packages`: `name`, `*.name` for subdomains, optionally with `:port`."""
    allowed_networks: Sequence[str] = ()
    """Private networks that may still be reached."""
    rules: EgressRules = NO_RULES
    """For a machine with the network `internet`."""

    @property
    def is_by_name(self) -> bool:
        """Whether some names are reached and others are not, which may share an address: then a
        connection must show which name it is for."""
        return self.network == "packages" or self.rules.are_by_name

    def refusal_of_name(self, host: str) -> str | None:
        """Why this host must not be reached at any port; None if it may."""
        if self.network == "none":
            return NO_NETWORK
        if self.network == "internet":
            return self.rules.refusal_of_name(host)
        return None if any(_matches(entry, host) for entry in self.hosts) else NOT_LISTED

    def refusal(self, host: str, port: int) -> str | None:
        """Why this host must not be reached, judged by its name; None if it may."""
        if (reason := self.refusal_of_name(host)) is not None:
            return reason
        if self.network == "internet":
            is_open = port in (*_WEB_PORTS, _SSH_PORT) or port >= _FIRST_UNPRIVILEGED_PORT
            return None if is_open else f"port {port} is closed"
        ports = [_port(entry) for entry in self.hosts if _matches(entry, host)]
        is_open = port in ports or (None in ports and port in _WEB_PORTS)
        return None if is_open else f"port {port} is not in the package allow-list"

    def refusal_of_address(self, host: str, address: str) -> str | None:
        """Why this address of the host must not be reached; None if it may."""
        is_ruled = self.network == "internet"
        return self.rules.refusal_of_address(host, address) if is_ruled else None


@dataclass(slots=True)
class Refusal:
    host: str
    port: int
    reason: str
    count: int
    first_at: float
    last_at: float


@dataclass(slots=True)
class SecretUse:
    """Requests with a secret, and their bytes both ways."""

    id: str
    requests: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class EgressReport:
    """Outgoing traffic and refusals of a machine since its start, the latest refusal last."""

    network: Network
    connections: int = 0
    refused: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    refusals: Sequence[Refusal] = ()
    secrets: Sequence[SecretUse] = ()


class EgressCounter:
    """Counts traffic; of the refusals it stores only the latest hosts."""

    def __init__(self) -> None:
        self.connections = 0
        self.refused = 0
        self.bytes_sent = 0
        self.bytes_received = 0
        self._refusals: dict[tuple[str, int, str], Refusal] = {}
        self._uses: dict[str, SecretUse] = {}

    @classmethod
    def of(cls, report: EgressReport) -> "EgressCounter":
        """A counter that continues from the report."""
        made = cls()
        made.connections, made.refused = report.connections, report.refused
        made.bytes_sent, made.bytes_received = report.bytes_sent, report.bytes_received
        made._refusals = {(each.host, each.port, each.reason): each for each in report.refusals}
        made._uses = {each.id: each for each in report.secrets}
        return made

    def use_of(self, secret_id: str) -> SecretUse:
        use = self._uses.setdefault(secret_id, SecretUse(secret_id))
        if len(self._uses) > MOST_SECRETS:
            del self._uses[next(iter(self._uses))]
        return use

    def refuse(self, host: str, port: int, reason: str, *, at: float) -> bool:
        """Whether this refusal is new."""
        self.refused += 1
        key = (host, port, reason)
        known = self._refusals.pop(key, None)
        count, first_at = (known.count, known.first_at) if known else (0, at)
        self._refusals[key] = Refusal(host, port, reason, count + 1, first_at, at)
        if len(self._refusals) > _MOST_REFUSALS:
            del self._refusals[next(iter(self._refusals))]
        return known is None

    def report(self, network: Network) -> EgressReport:
        return EgressReport(
            network,
            self.connections,
            self.refused,
            self.bytes_sent,
            self.bytes_received,
            list(self._refusals.values()),
            list(self._uses.values()),
        )


def read_report(found: object, network: Network) -> EgressReport:
    """Parse a report from an untrusted source. Raises ValueError if it is malformed."""
    try:
        fields = dict(found)  # type: ignore[call-overload]
        refusals = [Refusal(**each) for each in fields.pop("refusals")]
        uses = [SecretUse(**each) for each in fields.pop("secrets", ())]
        given = fields | {"network": network}
        report = EgressReport(**given, refusals=refusals, secrets=uses)
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError("no report") from error
    counts = (report.connections, report.refused, report.bytes_sent, report.bytes_received)
    if len(refusals) > _MOST_REFUSALS or not all(_is_count(each) for each in counts):
        raise ValueError("no counts")
    if not all(_is_refusal(each) for each in refusals):
        raise ValueError("no refusals")
    if len(uses) > MOST_SECRETS or not all(map(_is_use, uses)):
        raise ValueError("no uses")
    return report


def _is_count(found: object) -> bool:
    return type(found) is int and 0 <= found < _LARGEST


def _is_refusal(found: Refusal) -> bool:
    texts, times = (found.host, found.reason), (found.first_at, found.last_at)
    return (
        all(isinstance(each, str) and len(each) < _LONGEST for each in texts)
        and all(type(each) is float and 0 <= each < _LARGEST for each in times)
        and _is_count(found.port)
        and _is_count(found.count)
    )


def _is_use(found: SecretUse) -> bool:
    is_id = isinstance(found.id, str) and len(found.id) < _LONGEST
    return is_id and _is_count(found.requests) and _is_count(found.bytes)


def refusal_line(host: str, reason: str) -> str:
    """The line shown in the log and to the owner."""
    return f"blocked: {host} ({reason})"


def _is_network(text: str) -> bool:
    return is_address(text.partition("/")[0])


def is_address(text: str) -> bool:
    """Whether this is an address, and not a name."""
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def host_matches(entry: str, host: str, port: int, *, usual: int) -> bool:
    """Whether an entry of a list of hosts means this port of this host."""
    return _matches(entry, host) and port == (_port(entry) or usual)


def _matches(entry: str, host: str) -> bool:
    name = entry.rpartition(":")[0] if _port(entry) is not None else entry
    name = name.lower().strip("[]")
    return host.endswith(name[1:]) if name.startswith("*.") else host == name


def _port(entry: str) -> int | None:
    """The port in an entry; an IPv6 address without brackets has none."""
    name, _, port = entry.rpartition(":")
    is_port = port.isdecimal() and (":" not in name or name.endswith("]"))
    return int(port) if name and is_port else None

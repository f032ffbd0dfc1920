"""Secrets that the programs of a machine use at some hosts, and never have. Pure decisions."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import quote, unquote, unquote_plus

from sandyard.runtime.network_model import host_matches

TLS_PORT = 443
USUAL_HEADERS = (
    *("authorization", "x-api-key", "api-key", "apikey", "x-auth-token", "x-access-token"),
    *("private-token", "x-goog-api-key", "x-subscription-token"),
)
"""Those in which a secret is sent, unless its binding names others. Others are often reflected."""
LEAST_LETTERS = 8
"""A shorter one would be found in answers that do not repeat it."""


@dataclass(frozen=True, slots=True)
class BoundSecret:
    """Programs have the placeholder. The egress proxy puts the value in, in requests by TLS to the
    hosts, with these methods and below these paths; all with none named."""

    id: str
    name: str
    placeholder: str
    value: str = field(repr=False)
    hosts: Sequence[str]
    """`name`, `*.name` for subdomains; with `:port` unless that is 443."""
    methods: Sequence[str] = ()
    paths: Sequence[str] = ()
    headers: Sequence[str] = USUAL_HEADERS
    """In lower case: those in which the placeholder is replaced."""
    query: Sequence[str] = ()
    """The parameters in which it is."""
    sets_header: str | None = None
    """Set to the value in every such request, whatever the program sends."""
    most_requests: int | None = None
    most_bytes: int | None = None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "BoundSecret":
        given: dict[str, Any] = {
            name: tuple(found) if isinstance(found, list) else found
            for name, found in fields.items()
        }
        return cls(**given)

    def is_bound_to(self, host: str, port: int) -> bool:
        return any(host_matches(each, host, port, usual=TLS_PORT) for each in self.hosts)

    def refusal(self, method: str, path: str) -> str | None:
        """Why it isn't sent with such a request; None if it is."""
        if self.methods and method not in self.methods:
            return f"the secret {self.name} is not for {method}"
        if not self.paths:
            return None
        if not _is_canonical(path) or not any(_is_below(path, each) for each in self.paths):
            return f"the secret {self.name} is not for this path"
        return None


@dataclass(frozen=True, slots=True)
class MachineSecrets:
    """Of one machine, with the certificate for their hosts, which it trusts by its authority."""

    bound: Sequence[BoundSecret] = ()
    authority: str = ""
    """PEM, as all here."""
    certificate: str = ""
    key: str = field(default="", repr=False)
    trusted: str = ""
    """More authorities for the hosts themselves."""
    libraries: str = ""
    """The folder of the installed packages."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "MachineSecrets":
        """Raises TypeError or KeyError if it describes none."""
        bound = tuple(map(BoundSecret.of, fields["bound"]))
        return cls(**{**fields, "bound": bound})

    def described(self) -> dict[str, Any]:
        return asdict(self)

    def differs_in_budgets_alone(self, other: "MachineSecrets") -> bool:
        without = [
            [replace(each, most_requests=None, most_bytes=None) for each in secrets.bound]
            for secrets in (self, other)
        ]
        return without[0] == without[1]

    def bound_to(self, host: str, port: int) -> Sequence[BoundSecret]:
        return [each for each in self.bound if each.is_bound_to(host, port)]


NO_SECRETS = MachineSecrets()


class PlacementError(Exception):
    """A secret is asked for where it is not sent; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A request with the values in it."""

    target: str
    headers: Sequence[tuple[str, str]]
    used: Sequence[BoundSecret] = ()
    traces: Sequence[bytes] = ()
    """As what the values would be seen in an answer that repeats them."""


def place(
    secrets: Sequence[BoundSecret], method: str, target: str, headers: Sequence[tuple[str, str]]
) -> Placed:
    """Put the values of these secrets, all bound to the request's host, where they belong. Raises
    PlacementError if a placeholder is anywhere else."""
    path = target.partition("?")[0]
    used, traces = [], []
    for secret in secrets:
        reason = secret.refusal(method, path)
        placed_target, placed_headers = target, headers
        if reason is None:
            placed_target = _in_query(secret, target)
            placed_headers = [(name, _in_header(secret, name, text)) for name, text in headers]
            if secret.sets_header is not None:
                wanted = secret.sets_header.lower()
                placed_headers = [each for each in placed_headers if each[0].lower() != wanted]
                placed_headers.append((secret.sets_header, secret.value))
        if _names_it(secret, placed_target, placed_headers):
            raise PlacementError(reason or f"the secret {secret.name} is not sent there")
        if (placed_target, list(placed_headers)) != (target, list(headers)):
            used.append(secret)
            traces += _traces(secret, headers, placed_headers)
        target, headers = placed_target, placed_headers
    return Placed(target, headers, used, traces)


def _names_it(secret: BoundSecret, target: str, headers: Sequence[tuple[str, str]]) -> bool:
    return secret.placeholder in unquote(target) or any(
        secret.placeholder in text or secret.placeholder in (_decoded(text) or "")
        for _, text in headers
    )


def _in_header(secret: BoundSecret, name: str, text: str) -> str:
    if name.lower() not in secret.headers:
        return text
    if (decoded := _decoded(text)) is None:
        return text.replace(secret.placeholder, secret.value)
    replaced = decoded.replace(secret.placeholder, secret.value)
    encoded = base64.b64encode(replaced.encode()).decode()
    return text if replaced == decoded else f"{text.split()[0]} {encoded}"


def _decoded(text: str) -> str | None:
    """User and password of basic authentication."""
    scheme, _, encoded = text.strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _in_query(secret: BoundSecret, target: str) -> str:
    path, mark, query = target.partition("?")
    value = quote(secret.value, safe="")
    pairs = [
        pair.replace(secret.placeholder, value)
        if unquote_plus(pair.partition("=")[0]) in secret.query
        else pair
        for pair in query.split("&")
    ]
    return path + mark + "&".join(pairs)


def _traces(
    secret: BoundSecret, before: Sequence[tuple[str, str]], after: Sequence[tuple[str, str]]
) -> list[bytes]:
    encoded = [
        text.split()[1] for name, text in after if (name, text) not in before and _decoded(text)
    ]
    words = [each for each in secret.value.split() if len(each) >= LEAST_LETTERS]
    forms = {secret.value, quote(secret.value, safe=""), *words, *encoded}
    return [each.encode() for each in forms]


def _is_canonical(path: str) -> bool:
    """Whether all servers take it for the same path."""
    plain = unquote(path)
    steps = plain.split("/")[1:]
    if {"", ".", ".."} & set(steps[:-1]) or steps[-1] in (".", ".."):
        return False
    return not set(plain) & {"%", "\\"} and plain.count("/") == path.count("/")


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix if prefix.endswith("/") else f"{prefix}/")

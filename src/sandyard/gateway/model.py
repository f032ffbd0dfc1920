"""Hosts of sandboxes, access tokens, and access decisions, without any I/O."""

import re
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from urllib.parse import urlsplit

_LABEL = re.compile(r"([1-9]\d{0,4})-((?:sbx|prj|pub)-[a-z0-9]{17})")
_LAST_PORT = 65535
_DEFAULT_PORTS = {"http": 80, "https": 443}


class PageScope(StrEnum):
    VIEW = "view"
    """Open the sandbox or the preview in a browser."""
    STATUS = "status"
    """Ask how a project's preview stands."""
    SYNC = "sync"
    """Bring a project's preview up to date."""


@dataclass(frozen=True, slots=True)
class TargetHost:
    """A port of a sandbox or of a project's preview, or a published project, as named by a host."""

    port: int
    target_id: str

    @property
    def label(self) -> str:
        return f"{self.port}-{self.target_id}"

    @property
    def kind(self) -> str:
        """The prefix of the id: `sbx`, `prj` or `pub`."""
        return self.target_id.partition("-")[0]


@dataclass(frozen=True, slots=True)
class SandboxDomain:
    """The domain below which every port of every sandbox has a host."""

    scheme: str
    name: str
    port: int | None = None
    """None for the scheme's default."""

    @classmethod
    def parse(cls, text: str, *, public_url: str) -> "SandboxDomain":
        """`[scheme://]name[:port]`; omitted components default to those of the server's public
        URL."""
        public = urlsplit(public_url)
        named = urlsplit(text if "://" in text else f"//{text}")
        scheme = named.scheme or public.scheme
        port = named.port if named.port or named.scheme else public.port
        is_default = port == _DEFAULT_PORTS[scheme]
        return cls(scheme, (named.hostname or "").lower(), None if is_default else port)

    def has(self, host: bytes) -> bool:
        """Whether a `Host` header names a host below the domain, also with a trailing dot, which a
        browser treats as a different host."""
        name = host.lower().partition(b":")[0].removesuffix(b".")
        return name.endswith(b"." + self.name.encode())

    def find(self, host: bytes) -> TargetHost | None:
        """The port and sandbox that the `Host` header names; None if there is none."""
        name, _, port = host.decode("latin-1").lower().partition(":")
        found = _LABEL.fullmatch(name.removesuffix(f".{self.name}"))
        if found is None or not name.endswith(f".{self.name}"):
            return None
        is_known = int(found[1]) <= _LAST_PORT and (not port or port.isdecimal())
        return TargetHost(int(found[1]), found[2]) if is_known else None

    def find_custom(self, host: bytes) -> str | None:
        """A name of another domain that a proxy has put before this one."""
        name = host.decode("latin-1").lower().partition(":")[0].removesuffix(f".{self.name}")
        return name if "." in name and self.has(host) else None

    def origin_of(self, host: TargetHost) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{host.label}.{self.name}{port}"

    def url_of(self, target_id: str, port: int) -> str:
        return f"{self.origin_of(TargetHost(port, target_id))}/"


class Account(Protocol):
    @property
    def is_active(self) -> bool: ...

    @property
    def token_version(self) -> int:
        """Incremented by everything that ends the account's logins, which also revokes its access
        tokens."""


class Key(Protocol):
    """An account's API key."""

    @property
    def account(self) -> Account: ...

    def holds_at(self, now: datetime) -> bool: ...


@dataclass(frozen=True, slots=True)
class Grant:
    """The content of an access token: its target and expiry."""

    target_id: str
    account_id: str
    token_version: int
    scopes: frozenset[PageScope]
    expires_at: datetime
    port: int | None = None
    """The only port that it opens; None for all."""
    key_id: str | None = None
    """The API key that requested it, and that it ends with; None with a login."""

    def opens(self, host: TargetHost) -> bool:
        is_port = self.port is None or self.port == host.port
        return PageScope.VIEW in self.scopes and self.target_id == host.target_id and is_port

    def allows(self, scope: PageScope, target_id: str) -> bool:
        return scope in self.scopes and self.target_id == target_id

    def is_in_force(self, account: Account | None) -> bool:
        version = self.token_version
        return account is not None and account.is_active and account.token_version == version


class Target(Protocol):
    """A sandbox or a preview, for the gateway."""

    @property
    def account_id(self) -> str: ...

    @property
    def is_public(self) -> bool: ...

    @property
    def public_ports(self) -> Collection[int]:
        """Those that are public even if it is not."""

    @property
    def is_running(self) -> bool: ...

    @property
    def wakes(self) -> bool:
        """Whether a request starts it."""

    @property
    def reports_missing_token(self) -> bool:
        """Whether callers without a token get an error about the token instead of not found."""

    @property
    def not_running_reason(self) -> str:
        """Its state if it is not running, for people with access."""


def is_public(target: Target, host: TargetHost) -> bool:
    return target.is_public or host.port in target.public_ports


SAFE_METHODS: AbstractSet[str] = frozenset({"GET", "HEAD", "OPTIONS"})


def is_own_origin(origins: list[bytes], own: str) -> bool:
    """Whether a request with these `Origin` headers came from a page of this origin."""
    return [each.lower() for each in origins] == [own.encode()]

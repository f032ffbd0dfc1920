"""Clients of the Broker: scopes, tokens, limits, and every decision about them.

No I/O. A token is `sbc-NAME.TOKEN_ID.SECRET`; only the hash of its secret is stored.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar

from sandyard.broker.clients import errors
from sandyard.kit.changes.transitions import SECRET, Cause, Transition, changed, created, removed

PREFIX = "sbc-"
SUBJECT_PREFIX = "client:"
MOST_TOKENS = 10
_HOUR_MS = 3_600_000
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_TOKEN = re.compile(r"sbc-([a-z0-9][a-z0-9-]{0,62})\.([a-z0-9]{12})\.([A-Za-z0-9_-]{43})")


class ClientScope(StrEnum):
    """What a client may do."""

    ALLOCATE = "allocate"
    """All calls of tracks: lease, queue, extend, release, read their own sandboxes."""
    READ = "read"
    """Read the pool and its history."""
    OPERATE = "operate"
    """Run jobs and act on sandboxes."""
    ADMIN = "admin"
    """Manage clients and webhooks."""


_INCLUDED: Mapping[ClientScope, frozenset[ClientScope]] = {
    ClientScope.ALLOCATE: frozenset({ClientScope.ALLOCATE}),
    ClientScope.READ: frozenset({ClientScope.READ}),
    ClientScope.OPERATE: frozenset({ClientScope.OPERATE, ClientScope.READ}),
    ClientScope.ADMIN: frozenset({ClientScope.ADMIN, ClientScope.OPERATE, ClientScope.READ}),
}


def with_included(scopes: Iterable[ClientScope]) -> frozenset[ClientScope]:
    """These scopes and the ones they include: `operate` includes `read`, `admin` includes both."""
    return frozenset(each for scope in scopes for each in _INCLUDED[scope])


class Slot(StrEnum):
    """What came of a call that takes a slot."""

    UNUSED = "unused"
    """Taken by this call or an earlier one, and no lease was made with it yet."""
    USED = "used"
    """Taken by an earlier call, which made its lease."""
    AT_LIMIT = "at_limit"
    """Refused: as many as allowed are taken."""
    OVER_BUDGET = "over_budget"
    """Refused: as many as allowed were taken in this hour."""


SLOT_REFUSED = (Slot.AT_LIMIT, Slot.OVER_BUDGET)
_HELD = "held "


def held_slot(track_id: str, sandbox_id: str) -> tuple[str, str]:
    """Instead of track and key, the slot of a replaced sandbox while it is held: no key has a
    space."""
    return track_id, _HELD + sandbox_id


def held_sandbox(key: str) -> str | None:
    """The sandbox whose hold the slot with this key counts; None for a lease's slot."""
    return key.removeprefix(_HELD) if key.startswith(_HELD) else None


def hour_of(at_ms: int) -> int:
    return at_ms // _HOUR_MS


def hour_left_sec(at_ms: int) -> int:
    return -(-(_HOUR_MS - at_ms % _HOUR_MS) // 1000)


BOOTSTRAP = "bootstrap"
"""The caller with a token from the environment."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller, whatever its credential."""

    name: str
    scopes: frozenset[ClientScope]
    track_prefix: str = ""
    rate: str | None = None
    max_leases: int | None = None

    @property
    def client(self) -> str | None:
        return None if self.name == BOOTSTRAP else self.name

    def may_call_as(self, track_id: str) -> bool:
        return track_id.startswith(self.track_prefix)


@dataclass(frozen=True, slots=True)
class Client:
    """A named client. Its tokens are state, except for their hashes."""

    SUBJECT: ClassVar[str] = "client_id"
    OWNER: ClassVar[str | None] = None

    client_id: str
    """`client:` and its name."""
    scopes: str
    """Comma-separated."""
    created_at: int
    track_prefix: str = ""
    """Prefix of the track ids that it may use."""
    rate: str | None = None
    """Limit for calls of tracks, such as `100/minute`."""
    max_leases: int | None = None
    tokens: list[dict[str, Any]] = field(default_factory=list)
    """Each with `token_id`, `created_at` and, if it expires, `expires_at`."""
    hashes: dict[str, str] = field(default_factory=dict, metadata=SECRET)
    """Hashes of the tokens' secrets, by token id."""
    sequence: int = 0

    @property
    def name(self) -> str:
        return self.client_id.removeprefix(SUBJECT_PREFIX)

    @property
    def caller(self) -> Caller:
        scopes = with_included(ClientScope(each) for each in self.scopes.split(","))
        return Caller(self.name, scopes, self.track_prefix, self.rate, self.max_leases)

    def accepts(self, token: "SentToken", now: int) -> bool:
        """Whether the token belongs to this client and is valid; compared in constant time."""
        known = self.hashes.get(token.token_id, "")
        matches = hmac.compare_digest(known, hash_of(token.secret))
        own = [each for each in self.tokens if each["token_id"] == token.token_id]
        return matches and bool(own) and _is_in_force(own[0], now)


@dataclass(frozen=True, slots=True)
class SentToken:
    client: str
    token_id: str
    secret: str

    @property
    def text(self) -> str:
        return f"{PREFIX}{self.client}.{self.token_id}.{self.secret}"


@dataclass(frozen=True, slots=True)
class Limits:
    """The scopes and limits of a client."""

    scopes: Sequence[ClientScope]
    track_prefix: str = ""
    rate: str | None = None
    max_leases: int | None = None

    @property
    def fields(self) -> Mapping[str, Any]:
        return asdict(self) | {"scopes": ",".join(dict.fromkeys(self.scopes))}


def client_id_of(name: str) -> str:
    return SUBJECT_PREFIX + name


def hash_of(secret: str) -> str:
    """A fast hash is enough: secrets are 256 random bits, so they can't be guessed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def parse_token(text: str) -> SentToken | None:
    found = _TOKEN.fullmatch(text)
    return SentToken(*found.groups()) if found else None


def decide_created(
    existing: Client | None, name: str, limits: Limits, cause: Cause
) -> Transition[Client]:
    """The name of a deleted client may be reused; its sequences continue from the current time. The
    name of the environment's tokens is reserved."""
    if existing is not None or name == BOOTSTRAP:
        raise errors.ClientExistsError
    client = Client(client_id_of(name), created_at=cause.at_ms // 1000, **limits.fields)
    return created(client, "client.created", cause, first=cause.at_ms)


def check_expiry(expires_at: int | None, now: int) -> None:
    """Raises TokenExpiryPassedError for a token that would never be valid."""
    if expires_at is not None and expires_at <= now:
        raise errors.TokenExpiryPassedError


def decide_token_added(
    client: Client | None, token: SentToken, expires_at: int | None, cause: Cause
) -> Transition[Client]:
    """Add a token and remove expired ones."""
    before = _known(client)
    now = cause.at_ms // 1000
    check_expiry(expires_at, now)
    valid = [each for each in before.tokens if _is_in_force(each, now)]
    if len(valid) >= MOST_TOKENS:
        raise errors.TooManyClientTokensError
    added: dict[str, Any] = {"token_id": token.token_id, "created_at": now}
    if expires_at is not None:
        added["expires_at"] = expires_at
    return _with_tokens(
        before,
        [*valid, added],
        {token.token_id: hash_of(token.secret)},
        "client.token_added",
        cause,
    )


def decide_token_revoked(client: Client | None, token_id: str, cause: Cause) -> Transition[Client]:
    before = _known(client)
    left = [each for each in before.tokens if each["token_id"] != token_id]
    if len(left) == len(before.tokens):
        raise errors.ClientTokenNotFoundError
    return _with_tokens(before, left, {}, "client.token_revoked", cause)


def decide_changed(client: Client | None, limits: Limits, cause: Cause) -> Transition[Client]:
    before = _known(client)
    return changed(before, replace(before, **limits.fields), "client.changed", cause)


def decide_deleted(client: Client | None, cause: Cause) -> Transition[Client]:
    return removed(_known(client), "client.deleted", cause)


def _with_tokens(
    before: Client, tokens: list[dict[str, Any]], added: dict[str, str], kind: str, cause: Cause
) -> Transition[Client]:
    known = before.hashes | added
    hashes = {each["token_id"]: known[each["token_id"]] for each in tokens}
    return changed(before, replace(before, tokens=tokens, hashes=hashes), kind, cause)


def _is_in_force(token: Mapping[str, Any], now: int) -> bool:
    return "expires_at" not in token or now < token["expires_at"]


def _known(client: Client | None) -> Client:
    if client is None:
        raise errors.ClientNotFoundError
    return client

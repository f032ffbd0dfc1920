"""Access tokens of an issuer: whom they let in, and what becomes of them when it is away."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from sandyard.broker.clients.errors import IssuerUnavailableError
from sandyard.broker.clients.model import ClientScope
from sandyard.broker.clients.oauth import Issuer, OAuthTokens
from sandyard.kit.errors import UnauthorizedError
from tests.support.broker.in_process import broker_api
from tests.support.clocks import ManualClock

NOW = 1_800_000_000
ISSUER = "https://issuer.example.com/pool"


@dataclass
class KeyServer:
    """Publishes the public keys of an issuer."""

    keys: dict[str, Any] = field(default_factory=dict)
    url: str = ""
    calls: int = 0
    is_away: bool = False
    body: bytes | None = None

    def make(self, key_id: str, *, curve: bool = False) -> None:
        self.keys[key_id] = (
            ec.generate_private_key(ec.SECP256R1())
            if curve
            else rsa.generate_private_key(public_exponent=65537, key_size=2048)
        )

    async def answer(self, _request: web.Request) -> web.Response:
        self.calls += 1
        if self.is_away:
            return web.Response(status=503)
        if self.body is not None:
            return web.Response(body=self.body, content_type="application/json")
        return web.json_response({"keys": [self._public(each) for each in self.keys]})

    def _public(self, key_id: str) -> dict[str, Any]:
        key = self.keys[key_id]
        is_rsa = isinstance(key, rsa.RSAPrivateKey)
        algorithm = jwt.get_algorithm_by_name("RS256" if is_rsa else "ES256")
        shown: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
        return shown | {"kid": key_id, "use": "sig", "alg": "RS256" if is_rsa else "ES256"}

    def sign(self, key_id: str, *, algorithm: str = "RS256", **claims: Any) -> str:
        whole = {
            "iss": ISSUER,
            "aud": "sandyard",
            "exp": NOW + 600,
            "client_id": "lab-runner",
            "scope": "sandyard/allocate other/thing",
        }
        sent = {name: value for name, value in (whole | claims).items() if value is not None}
        return jwt.encode(sent, self.keys[key_id], algorithm, headers={"kid": key_id})


def signed_with(secret: bytes, claims: dict[str, Any]) -> str:
    """A token with a shared secret, made by hand: the library refuses a public key for one."""
    parts = [{"alg": "HS256", "typ": "JWT", "kid": "one"}, claims]
    signed = b".".join(_base64(json.dumps(each).encode()) for each in parts)
    signature = hmac.new(secret, signed, hashlib.sha256).digest()
    return (signed + b"." + _base64(signature)).decode()


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


@pytest.fixture
async def issuer() -> AsyncIterator[KeyServer]:
    server = KeyServer()
    server.make("one")
    app = web.Application()
    app.router.add_get("/keys", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    [address] = runner.addresses
    server.url = f"http://127.0.0.1:{address[1]}/keys"
    yield server
    await runner.cleanup()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def tokens(issuer: KeyServer, clock: ManualClock) -> OAuthTokens:
    wanted = Issuer(issuer.url, ISSUER, ["sandyard", "cognito-client"], scope_prefix="sandyard/")
    return OAuthTokens(wanted, clock=clock)


async def test_scopes_are_the_issuers_without_its_prefix(
    issuer: KeyServer, tokens: OAuthTokens
) -> None:
    caller = await tokens.caller(issuer.sign("one"))
    assert caller.name == "oauth:lab-runner"
    assert caller.scopes == {ClientScope.ALLOCATE}
    listed = await tokens.caller(issuer.sign("one", scope=None, scp=["sandyard/operate"]))
    assert listed.scopes == {ClientScope.OPERATE, ClientScope.READ}
    assert not (await tokens.caller(issuer.sign("one", scope="allocate"))).scopes
    assert issuer.calls == 1


async def test_a_crowd_of_first_callers_waits_for_the_keys(
    issuer: KeyServer, tokens: OAuthTokens
) -> None:
    sent = [issuer.sign("one", jti=str(number)) for number in range(8)]
    callers = await asyncio.gather(*(tokens.caller(token) for token in sent))
    assert {caller.name for caller in callers} == {"oauth:lab-runner"}
    assert issuer.calls == 1


async def test_a_token_without_an_audience_is_for_its_client(
    issuer: KeyServer, tokens: OAuthTokens
) -> None:
    """As Cognito's client credentials are."""
    await tokens.caller(issuer.sign("one", aud=None, client_id="cognito-client"))
    with pytest.raises(UnauthorizedError):
        await tokens.caller(issuer.sign("one", aud=None, client_id="another"))


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example.com"},
        {"iss": None},
        {"aud": "another"},
        {"aud": ["another", "third"]},
        {"aud": None, "client_id": None},
        {"exp": NOW - 31},
        {"exp": None},
        {"exp": "tomorrow"},
        {"nbf": NOW + 31},
    ],
    ids=str,
)
async def test_claims_that_are_not_ours_are_refused(
    issuer: KeyServer, tokens: OAuthTokens, claims: dict[str, Any]
) -> None:
    with pytest.raises(UnauthorizedError):
        await tokens.caller(issuer.sign("one", **claims))


async def test_the_leeway_is_half_a_minute(
    issuer: KeyServer, tokens: OAuthTokens, clock: ManualClock
) -> None:
    await tokens.caller(issuer.sign("one", exp=NOW - 29))
    await tokens.caller(issuer.sign("one", nbf=NOW + 29))
    token = issuer.sign("one", exp=NOW + 5)
    await tokens.caller(token)
    clock.advance(36)  # it was believed, and not longer than it may be
    with pytest.raises(UnauthorizedError):
        await tokens.caller(token)


@pytest.mark.parametrize(("leeway_sec", "status"), [("0", 401), ("300", 409)])
async def test_auth_leeway_sec(
    issuer: KeyServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    leeway_sec: str,
    status: int,
) -> None:
    """A token that has expired, for a pool that is empty."""
    for name, value in {
        "AUTH_JWKS_URL": issuer.url,
        "AUTH_ISSUER": ISSUER,
        "AUTH_AUDIENCE": "sandyard",
        "AUTH_SCOPE_PREFIX": "sandyard/",
        "AUTH_LEEWAY_SEC": leeway_sec,
    }.items():
        monkeypatch.setenv(name, value)
    async with broker_api(tmp_path, "http://127.0.0.1:9") as api:
        expired = issuer.sign("one", exp=int(api.clock.now()) - 100)
        assert (await api.allocate("ann", expired)).status_code == status


async def test_a_public_key_is_no_shared_secret(issuer: KeyServer, tokens: OAuthTokens) -> None:
    """The classic confusion of algorithms, and no algorithm at all."""
    claims = {"iss": ISSUER, "aud": "sandyard", "exp": NOW + 600, "scope": "sandyard/admin"}
    public = json.dumps(issuer._public("one")).encode()
    headers = {"kid": "one"}
    forged = [
        signed_with(public, claims),
        jwt.encode(claims, "", "none", headers=headers),
        jwt.encode(claims, issuer.keys["one"], "RS256"),
        issuer.sign("one")[:-4] + "AAAA",
        "a.b.c",
        "..",
        "é.b.c",
        "x" * 9000 + "..",
    ]
    for token in forged:
        with pytest.raises(UnauthorizedError):
            await tokens.caller(token)


async def test_another_algorithm_than_the_keys_own_is_refused(
    issuer: KeyServer, tokens: OAuthTokens
) -> None:
    issuer.make("curve", curve=True)
    await tokens.caller(issuer.sign("curve", algorithm="ES256"))
    with pytest.raises(UnauthorizedError):
        await tokens.caller(issuer.sign("one", algorithm="RS512"))


async def test_a_new_key_is_found_and_forged_ids_call_the_issuer_seldom(
    issuer: KeyServer, tokens: OAuthTokens, clock: ManualClock
) -> None:
    await tokens.caller(issuer.sign("one"))
    issuer.make("two")
    with pytest.raises(UnauthorizedError):  # it was asked a moment ago
        await tokens.caller(issuer.sign("two"))
    assert issuer.calls == 1
    clock.advance(30)
    await tokens.caller(issuer.sign("two"))
    assert issuer.calls == 2
    stranger = KeyServer()
    stranger.make("three")
    for _ in range(20):
        with pytest.raises(UnauthorizedError):
            await tokens.caller(stranger.sign("three"))
    assert issuer.calls == 2


async def test_a_key_that_is_withdrawn_is_refused(
    issuer: KeyServer, tokens: OAuthTokens, clock: ManualClock
) -> None:
    old = issuer.sign("one", exp=NOW + 10_000)
    await tokens.caller(old)
    del issuer.keys["one"]
    issuer.make("two")
    clock.advance(3600)
    with pytest.raises(UnauthorizedError):
        await tokens.caller(old)


async def test_while_the_issuer_is_away_known_keys_go_on(
    issuer: KeyServer, tokens: OAuthTokens, clock: ManualClock
) -> None:
    await tokens.caller(issuer.sign("one"))
    issuer.is_away = True
    clock.advance(2 * 3600)
    await tokens.caller(issuer.sign("one", exp=NOW + 9000))
    issuer.make("two")
    with pytest.raises(IssuerUnavailableError):  # whether it has such a key is not known
        await tokens.caller(issuer.sign("two", exp=NOW + 9000))
    issuer.is_away = False
    clock.advance(30)
    await tokens.caller(issuer.sign("two", exp=NOW + 9000))


@pytest.mark.parametrize("body", [b"no json", b"[]", b'{"keys": 5}', b'{"keys": [{"kty": "oct"}]}'])
async def test_an_answer_that_is_no_key_set_lets_nobody_in(
    issuer: KeyServer, tokens: OAuthTokens, body: bytes
) -> None:
    issuer.body = body
    with pytest.raises((IssuerUnavailableError, UnauthorizedError)):
        await tokens.caller(issuer.sign("one"))

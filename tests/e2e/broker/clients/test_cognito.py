"""Amazon Cognito's access tokens, with its API and its keys as `moto` has them.

`moto` has no token endpoint, and so no grant of client credentials: such a token is signed here, in
the form that Cognito documents, with the private key whose public half `moto` publishes. That key
never changes: `tests/integration/broker/clients/test_oauth.py` rotates those of our own issuer.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from moto.server import ThreadedMotoServer
from moto.utilities.utils import load_resource

from sandyard.broker.clients.errors import IssuerUnavailableError
from sandyard.broker.clients.model import ClientScope
from sandyard.broker.clients.oauth import Issuer, OAuthTokens
from sandyard.kit.errors import UnauthorizedError
from tests.support.clocks import ManualClock
from tests.support.servers.processes import ServerProcess, sandyard_serve

REGION = "eu-west-1"
PASSWORD = "Correct-horse-9"
_KEYS = load_resource("cognitoidp/resources/jwks-private.json")


@dataclass
class Cognito:
    """A user pool with a resource server, an app client for machines, and a person."""

    url: str
    pool_id: str
    client_id: str
    api: Any

    @property
    def issuer(self) -> str:
        return f"https://cognito-idp.{REGION}.amazonaws.com/{self.pool_id}"

    @property
    def jwks_url(self) -> str:
        return f"{self.url}/{self.pool_id}/.well-known/jwks.json"

    def client_credentials(self, *scopes: str, **claims: Any) -> str:
        """An access token as the grant gives it: for no audience and no person."""
        now = int(time.time())
        whole = {
            "sub": self.client_id,
            "token_use": "access",
            "scope": " ".join(f"sandyard/{each}" for each in scopes),
            "auth_time": now,
            "iss": self.issuer,
            "exp": now + 3600,
            "iat": now,
            "version": 2,
            "jti": str(uuid4()),
            "client_id": self.client_id,
        }
        key = jwt.PyJWK(_KEYS, algorithm="RS256").key
        return jwt.encode(whole | claims, key, "RS256", headers={"kid": "dummy"})

    def login(self) -> dict[str, str]:
        """The tokens of the person, from Cognito's own API."""
        answer = self.api.admin_initiate_auth(
            UserPoolId=self.pool_id,
            ClientId=self.client_id,
            AuthFlow="ADMIN_NO_SRP_AUTH",
            AuthParameters={"USERNAME": "ada", "PASSWORD": PASSWORD},
        )
        found: dict[str, str] = answer["AuthenticationResult"]
        return found


@pytest.fixture(scope="module")
def moto_server() -> Iterator[ThreadedMotoServer]:
    server = ThreadedMotoServer(port=0)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def cognito(moto_server: ThreadedMotoServer) -> Cognito:
    host, port = moto_server.get_host_and_port()
    url = f"http://{host}:{port}"
    session: Any = boto3.Session(aws_access_key_id="local", aws_secret_access_key="local")
    api = session.client("cognito-idp", region_name=REGION, endpoint_url=url)
    pool_id = api.create_user_pool(PoolName="labs")["UserPool"]["Id"]
    api.create_resource_server(
        UserPoolId=pool_id,
        Identifier="sandyard",
        Name="sandyard",
        Scopes=[{"ScopeName": each, "ScopeDescription": each} for each in ("allocate", "read")],
    )
    client = api.create_user_pool_client(
        UserPoolId=pool_id,
        ClientName="lab-runner",
        GenerateSecret=True,
        AllowedOAuthFlows=["client_credentials"],
        AllowedOAuthScopes=["sandyard/allocate", "sandyard/read"],
        AllowedOAuthFlowsUserPoolClient=True,
    )
    api.admin_create_user(UserPoolId=pool_id, Username="ada")
    api.admin_set_user_password(
        UserPoolId=pool_id, Username="ada", Password=PASSWORD, Permanent=True
    )
    return Cognito(url, pool_id, client["UserPoolClient"]["ClientId"], api)


@pytest.fixture(scope="module")
def server(cognito: Cognito, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    environment = {
        "PARTS": "broker",
        "AUTH_JWKS_URL": cognito.jwks_url,
        "AUTH_ISSUER": cognito.issuer,
        "AUTH_AUDIENCE": cognito.client_id,
        "AUTH_SCOPE_PREFIX": "sandyard/",
    }
    folder: Path = tmp_path_factory.mktemp("cognito")
    with sandyard_serve(folder / "data", environment=environment) as server:
        httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=60)
        yield server


def allocate(server: ServerProcess, token: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}", "X-Track-ID": "lab-1"}
    return httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=60)


def listing(server: ServerProcess, token: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{server.url}/v1/admin/sandboxes", headers=headers, timeout=60)


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_client_credentials_may_do_what_their_scopes_say(
    server: ServerProcess, cognito: Cognito
) -> None:
    token = cognito.client_credentials("allocate")
    assert allocate(server, token).status_code == 201
    assert refusal(listing(server, token)) == (403, "INSUFFICIENT_SCOPE")
    reader = cognito.client_credentials("read")
    assert listing(server, reader).status_code == 200
    assert refusal(allocate(server, reader)) == (403, "INSUFFICIENT_SCOPE")


def test_a_persons_tokens_are_no_credentials(server: ServerProcess, cognito: Cognito) -> None:
    """Both are of the same pool and client, and signed with the same key."""
    tokens = cognito.login()
    assert refusal(allocate(server, tokens["AccessToken"])) == (403, "INSUFFICIENT_SCOPE")
    assert refusal(allocate(server, tokens["IdToken"])) == (401, "UNAUTHORIZED")


def test_another_pool_client_or_time_is_refused(server: ServerProcess, cognito: Cognito) -> None:
    for claims in (
        {"iss": f"https://cognito-idp.{REGION}.amazonaws.com/{REGION}_another"},
        {"client_id": "another"},
        {"exp": int(time.time()) - 60},
        {"token_use": "id"},
    ):
        token = cognito.client_credentials("allocate", **claims)
        assert refusal(allocate(server, token)) == (401, "UNAUTHORIZED"), claims


async def test_an_unknown_key_is_refused_and_an_outage_is_no_refusal(
    cognito: Cognito, moto_server: ThreadedMotoServer
) -> None:
    """Last in this file: Cognito is away afterwards."""
    clock = ManualClock(int(time.time()))
    issuer = Issuer(cognito.jwks_url, cognito.issuer, [cognito.client_id], "sandyard/")
    tokens = OAuthTokens(issuer, clock=clock)
    caller = await tokens.caller(cognito.client_credentials("allocate"))
    assert caller.scopes == {ClientScope.ALLOCATE}
    new_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    rotated = jwt.encode(
        jwt.decode(cognito.client_credentials("allocate"), options={"verify_signature": False}),
        new_key,
        "RS256",
        headers={"kid": "rotated"},
    )
    with pytest.raises(UnauthorizedError):  # Cognito has no such key
        await tokens.caller(rotated)
    moto_server.stop()
    clock.advance(31)
    with pytest.raises(IssuerUnavailableError):  # whether it has one now is not known
        await tokens.caller(rotated)
    await tokens.caller(cognito.client_credentials("allocate"))

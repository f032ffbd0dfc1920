"""An OpenID Connect issuer in a thread, over real HTTP, strict about codes, clients and PKCE."""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

CLIENT_ID, CLIENT_SECRET = "sandyard console", "a secret: with/marks"
KEY_ID = "one"

Answer = tuple[int, dict[str, Any] | str]
"""A status with JSON, or with the address that a browser is sent to."""


@dataclass
class OidcIssuer:
    url: str = ""
    now: Callable[[], float] = time.time
    person: dict[str, Any] = field(default_factory=dict)
    """What it says of whoever logs in next."""
    instead: dict[str, Any] = field(default_factory=dict)
    """Claims that it gets wrong."""
    is_away: bool = False
    takes_basic: bool = True
    issuer: str = ""
    exchanged: int = 0
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)
    _key: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    signs_with: Any = None

    def answer(self, method: str, path: str, sent: dict[str, str], authorization: str) -> Answer:
        if self.is_away:
            return 503, {}
        match method, path:
            case "GET", "/.well-known/openid-configuration":
                return 200, self._description()
            case "GET", "/keys":
                return 200, {"keys": [self._public_key()]}
            case "GET", "/authorize":
                return self._authorize(sent)
            case "POST", "/token":
                return self._token(sent, authorization)
        return 404, {}

    def _description(self) -> dict[str, Any]:
        method = "client_secret_basic" if self.takes_basic else "client_secret_post"
        return {
            "issuer": self.issuer or self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "token_endpoint_auth_methods_supported": [method],
        }

    def _public_key(self) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(
            jwt.get_algorithm_by_name("ES256").to_jwk(self._key.public_key())
        )
        return shown | {"kid": KEY_ID, "use": "sig", "alg": "ES256"}

    def _authorize(self, sent: dict[str, str]) -> Answer:
        assert sent["client_id"] == CLIENT_ID
        assert sent["response_type"] == "code"
        assert sent["code_challenge_method"] == "S256"
        assert "openid" in sent["scope"].split()
        code = secrets.token_urlsafe(8)
        self._codes[code] = sent
        back = urlencode({"code": code, "state": sent["state"]})
        return 303, f"{sent['redirect_uri']}?{back}"

    def _token(self, sent: dict[str, str], authorization: str) -> Answer:
        if not self._is_our_client(sent, authorization):
            return 401, {"error": "invalid_client"}
        begun = self._codes.pop(sent["code"], None)
        digest = hashlib.sha256(sent["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            begun is None
            or begun["redirect_uri"] != sent["redirect_uri"]
            or begun["code_challenge"] != challenge
        ):
            return 400, {"error": "invalid_grant"}
        self.exchanged += 1
        return 200, {"token_type": "Bearer", "id_token": self._id_token(begun["nonce"])}

    def _is_our_client(self, sent: dict[str, str], authorization: str) -> bool:
        if not self.takes_basic:
            return (sent.get("client_id"), sent.get("client_secret")) == (CLIENT_ID, CLIENT_SECRET)
        pair = b"sandyard%20console:a%20secret%3A%20with%2Fmarks"
        return authorization == f"Basic {base64.b64encode(pair).decode()}"

    def _id_token(self, nonce: str) -> str:
        now = int(self.now())
        claims = {
            "iss": self.url,
            "aud": CLIENT_ID,
            "sub": "248289761001",
            "nonce": nonce,
            "iat": now,
            "exp": now + 300,
            **self.person,
            **self.instead,
        }
        key = self.signs_with or self._key
        return jwt.encode(claims, key, "ES256", headers={"kid": KEY_ID})


@contextmanager
def oidc_issuer(now: Callable[[], float] = time.time) -> Iterator[OidcIssuer]:
    issuer = OidcIssuer(now=now)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(dict(parse_qsl(urlsplit(self.path).query)))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._reply({name: each[0] for name, each in parse_qs(body.decode()).items()})

        def _reply(self, sent: dict[str, str]) -> None:
            path, authorization = urlsplit(self.path).path, self.headers.get("Authorization", "")
            status, content = issuer.answer(self.command, path, sent, authorization)
            self.send_response(status)
            if isinstance(content, str):
                self.send_header("Location", content)
            body = b"" if isinstance(content, str) else json.dumps(content).encode()
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""Address and credentials of a server: passed in, from the environment, or from a profile."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from urllib.parse import urlsplit

from sandyard_client.errors import ConfigurationError
from sandyard_client.profiles import read_profile
from sandyard_client.wire import Credential

LOCAL_URL = "http://127.0.0.1:8080"

VARIABLES: Mapping[str, str] = {
    "url": "SANDYARD_URL",
    "track_token": "SANDYARD_TOKEN",
    "admin_token": "SANDYARD_ADMIN_TOKEN",
    "telemetry_token": "SANDYARD_TELEMETRY_TOKEN",
    "device_key": "SANDYARD_DEVICE_KEY",
    "api_key": "SANDYARD_API_KEY",
}
_FIELDS: Mapping[Credential, str] = {
    Credential.TRACK: "track_token",
    Credential.ADMIN: "admin_token",
    Credential.TELEMETRY: "telemetry_token",
    Credential.DEVICE: "device_key",
    Credential.ACCOUNT: "api_key",
}
_BY_KEY_HEADER = frozenset({Credential.DEVICE})
_KEY_PREFIXES = ("sbk-", "e2b_")


@dataclass(frozen=True, slots=True)
class Connection:
    """A server and the credentials for it; each call uses the one that it needs."""

    url: str = LOCAL_URL
    track_token: str | None = field(default=None, repr=False)
    admin_token: str | None = field(default=None, repr=False)
    telemetry_token: str | None = field(default=None, repr=False)
    device_key: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    """An API key of an account, or the access token of a login."""
    timeout_sec: float = 30.0
    """For each attempt to connect, to send and to receive a response."""
    verify: ssl.SSLContext | bool = True

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"{self.url}: must be such as http://host:port")
        object.__setattr__(self, "url", self.url.rstrip("/"))

    @classmethod
    def load(cls, profile: str | None = None, **given: str | None) -> "Connection":
        """From the arguments, then the environment (`SANDYARD_URL`, `SANDYARD_TOKEN` …), then the
        profile in the configuration file."""
        known = {each.name for each in fields(cls)}
        stored = {
            key: value
            for key, value in read_profile(profile).items()
            if key in known & {*VARIABLES}
        }
        environment = {
            name: value
            for name, variable in VARIABLES.items()
            if (value := os.environ.get(variable))
        }
        chosen = {name: value for name, value in given.items() if value}
        return replace(cls(), **{**stored, **environment, **chosen})  # type: ignore[arg-type]

    def headers_for(self, credential: Credential) -> dict[str, str]:
        """Raises ConfigurationError, naming the variable, if there is no such credential."""
        if credential is Credential.NONE:
            return {}
        name = _FIELDS[credential]
        secret: str | None = getattr(self, name)
        if not secret:
            kind = "" if credential is Credential.ACCOUNT else f" --token {credential.value}"
            raise ConfigurationError(
                f"There is no {name.replace('_', ' ')}. Set {VARIABLES[name]}, or store one by "
                f"`sandyard login{kind}`."
            )
        if credential in _BY_KEY_HEADER or secret.startswith(_KEY_PREFIXES):
            return {"X-API-Key": secret}
        return {"Authorization": f"Bearer {secret}"}

"""A client of registries: the distribution API, with tokens or passwords.

Addresses are checked when a connection is made, as of webhooks: those of private networks and of
this machine are refused, except those of registries that the operator has named. Redirects are
followed one by one, with the same check, and without credentials to another host.
"""

import base64
import hashlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urljoin, urlsplit

from sandyard.kit.public_addresses import Network, checked_socket
from sandyard.runtime.images import model
from sandyard.runtime.images.errors import (
    ImageRefusedError,
    RegistryAddressError,
    RegistryError,
    RegistryRefusedError,
)
from sandyard.runtime.images.model import Credentials, Manifest, Part, Reference

if TYPE_CHECKING:  # imported where it is used: most servers pull nothing
    import aiohttp

_MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_PIECE_BYTES = 1 << 20
_MOST_REDIRECTS = 5
_MOST_TOKEN_BYTES = 64 << 10
_CONNECT_SEC, _READ_SEC = 10, 60
_PARAMETER = re.compile(r'([a-zA-Z]+)="([^"]*)"')
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class NamedRegistry:
    """A registry that the operator trusts, at whatever address."""

    host: str
    """With its port, if it is not the scheme's own."""
    scheme: str = "https"

    @classmethod
    def of(cls, text: str) -> "NamedRegistry":
        scheme, found, host = text.rpartition("://")
        return cls(host, scheme) if found else cls(text)


@dataclass(frozen=True, slots=True)
class Registries:
    named: Sequence[NamedRegistry] = ()
    networks: Sequence[Network] = ()
    """Private networks that may be reached."""
    ca_files: Sequence[str] = ()

    @asynccontextmanager
    async def opened(
        self, reference: Reference, credentials: Credentials | None
    ) -> "AsyncIterator[RegistryImage]":
        """The image, as it is now. Raises ImageRefusedError, RegistryError."""
        import aiohttp

        checked = aiohttp.TCPConnector(
            socket_factory=checked_socket(self.networks, RegistryAddressError), ssl=self._tls()
        )
        trusted = aiohttp.TCPConnector(ssl=self._tls())
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SEC, sock_read=_READ_SEC)
        common: dict[str, Any] = {
            "timeout": timeout,
            "cookie_jar": aiohttp.DummyCookieJar(),
            "headers": {"User-Agent": "sandyard-images"},
            "auto_decompress": False,
        }
        try:
            async with (
                aiohttp.ClientSession(connector=checked, **common) as careful,
                aiohttp.ClientSession(connector=trusted, **common) as plain,
            ):
                scheme = self._scheme_of(reference.api_host)
                client = _Client(
                    f"{scheme}://{reference.api_host}/v2/{reference.repository}",
                    credentials,
                    careful,
                    plain,
                    {_origin(f"{each.scheme}://{each.host}") for each in self.named},
                )
                yield await _found(client, reference)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise RegistryError(
                f"The registry {reference.host} could not be reached.", reason=repr(error)
            ) from error

    def _scheme_of(self, host: str) -> str:
        return next((each.scheme for each in self.named if each.host == host), "https")

    def _tls(self) -> Any:
        import ssl

        context = ssl.create_default_context()
        for file in self.ca_files:
            context.load_verify_locations(file)
        return context


@dataclass(frozen=True, slots=True)
class RegistryImage:
    """An image in a registry: its manifest for this machine."""

    content: bytes
    manifest: Manifest
    _client: "_Client"

    async def read(self, part: Part) -> AsyncIterator[bytes]:
        """The part as it comes, unchecked. Raises RegistryRefusedError, RegistryError."""
        async with self._client.get(f"/blobs/sha256:{part.sha256}") as answer:
            async for piece in answer.content.iter_chunked(_PIECE_BYTES):
                yield piece


async def _found(client: "_Client", reference: Reference) -> RegistryImage:
    content = await client.manifest(reference.version)
    if reference.digest not in (None, _digest(content)):
        raise ImageRefusedError("The registry's manifest is not the one of this digest.")
    whole = model.read_json(content)
    if "layers" not in whole:
        chosen = model.suited(whole)
        content = await client.manifest(f"sha256:{chosen.sha256}")
        if hashlib.sha256(content).hexdigest() != chosen.sha256:
            raise ImageRefusedError("The registry's manifest is damaged.")
    return RegistryImage(content, model.manifest_of(model.read_json(content)), client)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class _Client:
    """For one repository."""

    def __init__(
        self,
        base: str,
        credentials: Credentials | None,
        careful: "aiohttp.ClientSession",
        plain: "aiohttp.ClientSession",
        trusted: set[str],
    ) -> None:
        self._base = base
        self._credentials = credentials
        self._careful, self._plain = careful, plain
        self._trusted = trusted
        self._authorization: str | None = None

    async def manifest(self, version: str) -> bytes:
        async with self.get(f"/manifests/{version}", accept=_MANIFESTS) as answer:
            return await _limited(answer, model.MOST_JSON_BYTES)

    @asynccontextmanager
    async def get(
        self, path: str, *, accept: str = "*/*"
    ) -> "AsyncIterator[aiohttp.ClientResponse]":
        url = self._base + path
        for _ in range(_MOST_REDIRECTS):
            headers = {"Accept": accept}
            if self._authorization is not None and _origin(url) == _origin(self._base):
                headers["Authorization"] = self._authorization
            async with self._request(url, headers) as answer:
                if answer.status == 401 and self._authorization is None:
                    await self._log_in(answer.headers.get("WWW-Authenticate", ""))
                elif answer.status in (301, 302, 303, 307, 308):
                    url = urljoin(url, answer.headers.get("Location", ""))
                else:
                    _require_success(answer.status)
                    yield answer
                    return
        raise RegistryRefusedError("The registry redirects too often.")

    def _request(
        self, url: str, headers: Mapping[str, str]
    ) -> "aiohttp.client._RequestContextManager":
        """Without TLS only where the operator said so."""
        is_trusted = _origin(url) in self._trusted
        if not is_trusted and urlsplit(url).scheme != "https":
            raise RegistryRefusedError("The registry leads to an address without TLS.")
        session = self._plain if is_trusted else self._careful
        return session.get(url, headers=headers, allow_redirects=False)

    async def _log_in(self, challenge: str) -> None:
        """With a token, if the registry says where to get one, else with the password itself."""
        kind, _, rest = challenge.partition(" ")
        asked = {name.lower(): value for name, value in _PARAMETER.findall(rest)}
        password = self._basic()
        if kind.lower() != "bearer":
            if password is None:
                raise RegistryRefusedError
            self._authorization = password
            return
        query = {name: asked[name] for name in ("service", "scope") if name in asked}
        url = f"{asked.get('realm', '')}?{urlencode(query)}"
        headers = {} if password is None else {"Authorization": password}
        async with self._request(url, headers) as answer:
            _require_success(answer.status)
            found = model.read_json(await _limited(answer, _MOST_TOKEN_BYTES))
        token = found.get("token") or found.get("access_token")
        if not isinstance(token, str) or not re.fullmatch(r"[!-~]+", token):
            raise RegistryRefusedError
        self._authorization = f"Bearer {token}"

    def _basic(self) -> str | None:
        if self._credentials is None:
            return None
        pair = f"{self._credentials.username}:{self._credentials.password}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _require_success(status: int) -> None:
    if status in (401, 403, 404):
        raise RegistryRefusedError
    if status != 200:
        raise RegistryError(f"The registry answered with status {status}.")


async def _limited(answer: "aiohttp.ClientResponse", most_bytes: int) -> bytes:
    content = b""
    async for piece in answer.content.iter_chunked(_MOST_TOKEN_BYTES):
        content += piece
        if len(content) > most_bytes:
            raise ImageRefusedError("The registry's answer is too long.")
    return content


def _origin(url: str) -> str:
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise RegistryRefusedError from error
    return f"{parts.scheme}://{parts.hostname}:{port}"

"""Probes of sandboxes: an HTTP request, a TCP connection, or the provider's own word."""

import asyncio
import os
import re
from contextlib import suppress

import httpx

from sandyard.broker.pool.model import Sandbox
from sandyard.broker.probes.ports import Prober
from sandyard.broker.provider.errors import ProviderUnavailableError
from sandyard.broker.provider.ports import Provider

_ADDRESS_PART = re.compile(r"[A-Za-z0-9._-]{1,253}\Z")
_FIELDS = ("name", "external_id", "sandbox_id")


class UnfitError(Exception):
    """What the provider calls the sandbox can't be part of an address."""


def address_of(target: str, sandbox: Sandbox) -> str:
    """The target with placeholders such as `{name}` replaced by the sandbox's values."""
    for field in _FIELDS:
        placeholder = f"{{{field}}}"
        if placeholder in target:
            value = str(getattr(sandbox, field))
            if not _ADDRESS_PART.match(value):
                raise UnfitError(f"its {field} can't be part of an address")
            target = target.replace(placeholder, value)
    return target


class HttpProbe:
    """Passes with any 2xx or 3xx answer."""

    def __init__(self, target: str, *, timeout_sec: float) -> None:
        self._target = target
        self._timeout_sec = timeout_sec
        self._http = httpx.AsyncClient(timeout=timeout_sec, follow_redirects=False)

    async def check(self, sandbox: Sandbox) -> str | None:
        try:
            url = address_of(self._target, sandbox)
            async with asyncio.timeout(self._timeout_sec):
                response = await self._http.get(url)
        except UnfitError as error:
            return str(error)
        except TimeoutError:
            return f"no answer within {self._timeout_sec:g} s"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return type(error).__name__
        is_fine = response.is_success or response.is_redirect
        return None if is_fine else f"status {response.status_code}"

    async def close(self) -> None:
        await self._http.aclose()


class TcpProbe:
    """Passes if something accepts the connection."""

    def __init__(self, target: str, *, timeout_sec: float) -> None:
        self._target = target
        self._timeout_sec = timeout_sec

    async def check(self, sandbox: Sandbox) -> str | None:
        try:
            host, _, port = address_of(self._target, sandbox).rpartition(":")
            async with asyncio.timeout(self._timeout_sec):
                _, writer = await asyncio.open_connection(host, int(port))
        except UnfitError as error:
            return str(error)
        except TimeoutError:
            return f"no connection within {self._timeout_sec:g} s"
        except OSError as error:
            return os.strerror(error.errno) if error.errno else type(error).__name__
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return None

    async def close(self) -> None:
        """Nothing is open between two probes."""


class ProviderProbe:
    """Passes if the provider reports that the sandbox exists. Also passes if the provider does not
    respond, because that says nothing about the sandbox."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def check(self, sandbox: Sandbox) -> str | None:
        try:
            is_there = await self._provider.has_sandbox(sandbox.external_id)
        except ProviderUnavailableError:
            return None
        return None if is_there else "the provider does not have it"

    async def close(self) -> None:
        """The provider is closed by its owner."""


def prober_of(target: str, provider: Provider, *, timeout_sec: float) -> Prober:
    """The prober that the setting names: `provider`, a URL, or `tcp://host:port`."""
    if target == "provider":
        return ProviderProbe(provider)
    scheme, _, address = target.partition("://")
    if scheme == "tcp":
        return TcpProbe(address, timeout_sec=timeout_sec)
    return HttpProbe(target, timeout_sec=timeout_sec)

"""The calls to the API server of a cluster, for the objects of one namespace."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sandyard.runtime.errors import RuntimeUnavailableError

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

Kind = Literal["pods", "secrets", "persistentvolumeclaims"]
Object = Mapping[str, Any]
_REQUEST_SEC = 15.0
_WATCH_SEC = 60
"""Then a watch is ended by the API server, and begun again where it ended."""
_WATCH_MARGIN_SEC = 15
_LIST_PAGE = 500


class ApiUnavailableError(RuntimeUnavailableError):
    """The API server of the cluster can't be reached. Nothing was decided; try again shortly."""

    code = "KUBERNETES_UNAVAILABLE"


class ApiRefusedError(RuntimeUnavailableError):
    """The API server of the cluster refused this. The operator finds the reason in the log."""

    code = "KUBERNETES_REFUSED"


class ConflictError(Exception):
    """There is such an object already, or it has changed since it was read."""


class InvalidObjectError(Exception):
    """The cluster does not admit this object: by a policy, a quota or its own rules."""


class ExpiredError(Exception):
    """A watch can't be continued from there: list again."""


@dataclass(frozen=True, slots=True)
class ApiAddress:
    url: str
    namespace: str
    token_file: Path | None = None
    """Read for each call: the cluster replaces it."""
    ca_file: Path | None = None


class KubernetesApi:
    """Every method raises ApiUnavailableError, or ApiRefusedError. No call is sent twice."""

    def __init__(self, address: ApiAddress) -> None:
        self._address = address
        self.namespace = address.namespace
        self._base = f"{address.url.rstrip('/')}/api/v1/namespaces/{address.namespace}"

    @cached_property
    def _session(self) -> "ClientSession":
        from aiohttp import ClientSession, ClientTimeout, TCPConnector

        ca_file = self._address.ca_file
        context = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
        return ClientSession(
            connector=TCPConnector(limit=0, ssl=context), timeout=ClientTimeout(total=None)
        )

    async def close(self) -> None:
        if "_session" in self.__dict__:
            await self._session.close()

    async def get(self, kind: Kind, name: str) -> Object | None:
        try:
            return await self._call("GET", f"{kind}/{name}")
        except KeyError:
            return None

    async def create(self, kind: Kind, manifest: Object) -> Object:
        """Raises ConflictError, InvalidObjectError."""
        return await self._call("POST", kind, json=manifest)

    async def patch(self, kind: Kind, name: str, patch: Object) -> Object | None:
        """A merge patch; with a `resourceVersion` in it, only if the object has that version. None
        if it is gone. Raises ConflictError, InvalidObjectError."""
        headers = {"Content-Type": "application/merge-patch+json"}
        try:
            return await self._call(
                "PATCH", f"{kind}/{name}", data=json.dumps(patch), headers=headers
            )
        except KeyError:
            return None

    async def delete(self, kind: Kind, name: str, *, uid: str) -> None:
        """Request the deletion of this object, and of no later one with its name."""
        with suppress(KeyError, ConflictError):
            await self._call("DELETE", f"{kind}/{name}", json={"preconditions": {"uid": uid}})

    async def list(self, kind: Kind, *, selector: str) -> tuple[list[Object], str]:
        """What is needed of the objects, and the version from which a watch continues. Raises
        ExpiredError."""
        found: list[Object] = []
        query = {"labelSelector": selector, "limit": str(_LIST_PAGE)}
        while True:
            page = await self._call("GET", kind, params=query)
            found += map(needed, page["items"])
            if not (query | {"continue": page["metadata"].get("continue", "")})["continue"]:
                return found, page["metadata"]["resourceVersion"]
            query["continue"] = page["metadata"]["continue"]

    async def watch(
        self, kind: Kind, *, selector: str, version: str
    ) -> AsyncGenerator[tuple[str, Object]]:
        """The changes since this version, and bookmarks, for about a minute. Raises
        ExpiredError."""
        query = {
            "labelSelector": selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_SEC),
        }
        within, sent = _WATCH_SEC + _WATCH_MARGIN_SEC, self._sent("GET", kind, params=query)
        async with _within(within), sent as response:
            rest = b""
            async for piece in response.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in filter(None, lines):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _failure(event["object"].get("code", 500), line)
                    yield event["type"], event["object"]

    async def _call(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        async with _within(_REQUEST_SEC), self._sent(method, path, **request) as response:
            return dict(await response.json())

    @asynccontextmanager
    async def _sent(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **request: Any
    ) -> "AsyncIterator[ClientResponse]":
        url, sent = f"{self._base}/{path}", {**(headers or {}), **self._authorization()}
        async with self._session.request(method, url, headers=sent, **request) as response:
            if response.status >= 400:
                raise _failure(response.status, await response.read())
            yield response

    def _authorization(self) -> dict[str, str]:
        if (file := self._address.token_file) is None:
            return {}
        try:
            return {"Authorization": f"Bearer {file.read_text().strip()}"}
        except OSError as error:
            raise ApiUnavailableError(reason=str(error)) from error


def needed(found: Object) -> Object:
    """Without what was ordered, and who wrote which field: most of its memory."""
    metadata = {key: each for key, each in found["metadata"].items() if key != "managedFields"}
    return {key: each for key, each in found.items() if key != "spec"} | {"metadata": metadata}


def _failure(status: int, content: bytes) -> Exception:
    try:
        message = str(json.loads(content).get("message", ""))
    except (ValueError, AttributeError):
        message = content[:300].decode(errors="replace")
    reason = f"{status}: {message[:500]}"
    match status:
        case 404:
            return KeyError(reason)
        case 409:
            return ConflictError(reason)
        case 410:
            return ExpiredError(reason)
        case 403 | 422 if "forbidden: " in message or status == 422:
            return InvalidObjectError(message[:500])
        case 429:
            return ApiUnavailableError(reason=reason)
        case _ if status >= 500:
            return ApiUnavailableError(reason=reason)
    return ApiRefusedError(reason=reason)


@asynccontextmanager
async def _within(timeout_sec: float) -> AsyncIterator[None]:
    from aiohttp import ClientError

    try:
        async with asyncio.timeout(timeout_sec):
            yield
    except TimeoutError as error:
        raise ApiUnavailableError(reason="no response in time") from error
    except (ClientError, ValueError) as error:
        raise ApiUnavailableError(reason=f"{type(error).__name__}: {error}") from error

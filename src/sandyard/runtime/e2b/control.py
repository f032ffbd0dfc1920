"""E2B's control API: sandboxes are created, listed, moved in time, snapshotted and killed."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlencode

from sandyard.kit.concurrency.tasks import SingleFlight
from sandyard.kit.errors import NotFoundError
from sandyard.runtime.remote import envd
from sandyard.runtime.remote.envd import Envd
from sandyard.runtime.remote.errors import CallError, Translate
from sandyard.runtime.remote.http import HttpCaller, HttpPool, Reply, parsing, repeated
from sandyard.runtime.remote.machines import MachineAccess, MachineInfo

FEW = 4
"""This many are requested individually at the same time."""
QUESTIONS_PER_PAGE = 10
"""A page of the list takes about as long as this many requests; no more pages are read than pay
off."""
T = TypeVar("T")

State = Literal["running", "paused", "gone"]
SHORTEST_SEC = 1
_JSON_STATUSES = (404, 500)
_PAGE = 100
_GATHER_SEC = 0.005


class EndTimes:
    """A few requests are sent individually; further ones share a list that began after they
    arrived.

    A sandbox that is not listed is requested individually: its absence from a list does not prove
    that it is gone.
    """

    def __init__(
        self,
        ask: Callable[[str], Awaitable[datetime]],
        pages: Callable[[], AsyncIterator[Mapping[str, datetime]]],
        *,
        gather_sec: float = 0,
    ) -> None:
        """`gather_sec`: how long a list waits for callers that arrive just after the first."""
        self._ask = ask
        self._pages = pages
        self._asking = 0
        self._wanted: set[str] = set()
        self._lists: SingleFlight[Mapping[str, datetime]] = SingleFlight(gather_sec=gather_sec)

    async def get(self, sandbox_id: str) -> datetime:
        if self._asking >= FEW or self._wanted:
            self._wanted.add(sandbox_id)
            listed = await self._lists.run("all", self._list)
            if sandbox_id in listed:
                return listed[sandbox_id]
        self._asking += 1
        try:
            return await self._ask(sandbox_id)
        finally:
            self._asking -= 1

    async def stop(self) -> None:
        await self._lists.stop()

    async def _list(self) -> Mapping[str, datetime]:
        wanted, self._wanted = self._wanted, set()
        pages_left = 1 + len(wanted) // QUESTIONS_PER_PAGE
        found: dict[str, datetime] = {}
        async for page in self._pages():
            found |= page
            pages_left -= 1
            if not pages_left or wanted <= found.keys():
                break
        return found


@dataclass(frozen=True, slots=True)
class E2bTimeouts:
    """Timeouts of a request, a create or resume, a command inside, an update of a preview's files,
    a snapshot."""

    request_sec: float = 10
    create_sec: float = 60
    command_sec: float = 30
    files_sec: float = 60
    snapshot_sec: float = 120
    snapshot_retry_sec: float = 600
    """For a snapshot, before a program is ended without one."""


@dataclass(frozen=True, slots=True)
class Measurement:
    at: float
    cpu_count: int
    cpu_used_pct: float
    memory_bytes: int


class E2bControl:
    """Implements `RemoteMachines`; and what E2B offers besides."""

    def __init__(
        self,
        api_key: str,
        *,
        domain: str,
        api_url: str | None,
        sandbox_url: str | None,
        pool: HttpPool,
        translate: Translate,
        timeouts: E2bTimeouts = E2bTimeouts(),
        repeats: int = 0,
    ) -> None:
        """The URLs default to those of the domain. Failed calls are raised as `translate` says.
        `repeats` is how often an idempotent call is repeated after a 429 or 5xx."""
        self.sandbox_url = sandbox_url
        self._domain = domain
        self.translate = translate
        self.timeouts = timeouts
        self._repeats = repeats
        self._pool = pool
        self._api = HttpCaller(
            pool,
            api_url or f"https://api.{domain}",
            {"X-API-Key": api_key},
            pool.backoff,
            json_statuses=_JSON_STATUSES,
        )
        self._end_times = EndTimes(self._get_end_time, self._list_end_times, gather_sec=_GATHER_SEC)

    async def close(self) -> None:
        """The pool and the sandboxes remain."""
        await self._end_times.stop()

    async def check(self) -> None:
        """Return if E2B answers and accepts the key."""
        await self._call("GET", "/v2/sandboxes", params={"limit": 1})

    async def create(
        self, template: str, *, lifetime_sec: float, metadata: Mapping[str, str], pauses: bool
    ) -> MachineAccess:
        order = {
            "templateID": template,
            "timeout": _seconds(lifetime_sec),
            "metadata": dict(metadata),
            **({"autoPause": True, "autoResume": {"enabled": False}} if pauses else {}),
        }
        timeout_sec = self.timeouts.create_sec
        body = await self._call("POST", "/v2/sandboxes", json=order, timeout_sec=timeout_sec)
        return self._parsed(self._access, body)

    async def connect(
        self, sandbox_id: str, *, lifetime_sec: float = SHORTEST_SEC
    ) -> MachineAccess:
        """The sandbox, which lives at least this long; a paused one is resumed."""
        body = await self._call(
            "POST",
            f"/v2/sandboxes/{sandbox_id}/connect",
            json={"timeout": _seconds(lifetime_sec)},
            timeout_sec=self.timeouts.create_sec,
            repeats=True,
            gone=True,
        )
        return self._parsed(self._access, body)

    def envd(self, access: MachineAccess) -> Envd:
        url = self.sandbox_url or f"https://{access.host(envd.PORT)}"
        headers = {
            "E2b-Sandbox-Id": access.machine_id,
            "E2b-Sandbox-Port": str(envd.PORT),
            "X-Access-Token": access.token,
        }
        backoff = self._pool.sandbox_backoffs.of(access.machine_id)
        return Envd(HttpCaller(self._pool, url, headers, backoff))

    async def get(self, sandbox_id: str) -> MachineInfo:
        """Raises the translation of `gone`."""
        body = await self._call("GET", f"/sandboxes/{sandbox_id}", repeats=True, gone=True)
        return self._parsed(self._info, body)

    async def state(self, sandbox_id: str) -> State:
        try:
            return (await self.get(sandbox_id)).state
        except NotFoundError:
            return "gone"

    async def end_time(self, sandbox_id: str) -> datetime:
        return await self._end_times.get(sandbox_id)

    async def list_by_metadata(self, metadata: Mapping[str, str]) -> Sequence[MachineInfo]:
        found = [each async for page in self._pages(metadata) for each in page]
        return [each for each in found if metadata.items() <= each.metadata.items()]

    async def set_timeout(self, sandbox_id: str, *, lifetime_sec: float) -> None:
        """E2B may allow less."""
        timeout = {"timeout": _seconds(lifetime_sec)}
        await self._call("POST", f"/sandboxes/{sandbox_id}/timeout", json=timeout, gone=True)

    async def kill(self, sandbox_id: str) -> None:
        await self._delete(f"/sandboxes/{sandbox_id}")

    async def metrics(self, sandbox_id: str, *, since_at: float) -> Sequence[Measurement]:
        params = {"start": int(since_at)}
        body = await self._call("GET", f"/sandboxes/{sandbox_id}/metrics", params=params, gone=True)
        return self._parsed(_measurements, body)

    async def take_snapshot(self, sandbox_id: str, *, name: str) -> str:
        """Store the disk of a running sandbox; returns the snapshot's id. One of this name is
        replaced."""
        body = await self._call(
            "POST",
            f"/sandboxes/{sandbox_id}/snapshots",
            json={"name": name},
            timeout_sec=self.timeouts.snapshot_sec,
            gone=True,
        )
        return self._parsed(_snapshot_id, body)

    async def has_snapshot(self, snapshot_id: str) -> bool:
        params: dict[str, Any] = {"name": snapshot_id, "limit": _PAGE}
        async for page in self._raw_pages("/snapshots", params):
            if snapshot_id in self._parsed(_snapshot_names, page):
                return True
        return False

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Return when it no longer exists."""
        await self._delete(f"/templates/{quote(snapshot_id, safe='')}")

    async def _get_end_time(self, sandbox_id: str) -> datetime:
        return (await self.get(sandbox_id)).end_at

    async def _list_end_times(self) -> AsyncIterator[Mapping[str, datetime]]:
        async for page in self._pages({"kind": "preview"}, state="running"):
            yield {each.machine_id: each.end_at for each in page}

    async def _pages(
        self, metadata: Mapping[str, str], **params: Any
    ) -> AsyncIterator[Sequence[MachineInfo]]:
        quoted = urlencode({quote(key): quote(value) for key, value in metadata.items()})
        params |= {"metadata": quoted, "limit": _PAGE}
        async for page in self._raw_pages("/v2/sandboxes", params):
            yield self._parsed(self._infos, page)

    async def _raw_pages(self, path: str, params: dict[str, Any]) -> AsyncIterator[Any]:
        token = None
        while True:
            paged = params | ({"nextToken": token} if token else {})
            response = await self._send("GET", path, params=paged, repeats=True)
            yield self._parsed(response.json)
            token = response.headers.get("X-Next-Token")
            if not token:
                return

    async def _delete(self, path: str) -> None:
        with suppress(NotFoundError):
            await self._send("DELETE", path, repeats=True, gone=True)

    async def _call(self, method: str, path: str, **options: Any) -> Any:
        response = await self._send(method, path, **options)
        return self._parsed(response.json) if response.content else None

    async def _send(
        self,
        method: str,
        path: str,
        *,
        timeout_sec: float | None = None,
        repeats: bool = False,
        gone: bool = False,
        **request: Any,
    ) -> Reply:
        """With `gone`, a 404 says that the sandbox is gone."""
        timeout_sec = timeout_sec or self.timeouts.request_sec

        async def send() -> Reply:
            try:
                return await self._api.call(method, path, within_sec=timeout_sec, **request)
            except CallError as error:
                if gone and error.trouble == "not_found":
                    raise CallError("gone", error.reason, status=error.status) from error
                raise

        try:
            return await repeated(send, repeats=self._repeats if repeats else 0)
        except CallError as error:
            raise self.translate(error) from error

    def _parsed(self, parse: Callable[..., T], *parts: Any) -> T:
        try:
            with parsing():
                return parse(*parts)
        except CallError as error:
            raise self.translate(error) from error

    def _access(self, body: Any) -> MachineAccess:
        token = body.get("envdAccessToken") or ""
        return MachineAccess(str(body["sandboxID"]), self._domain_of(body), token=str(token))

    def _infos(self, page: Any) -> list[MachineInfo]:
        return [self._info(each) for each in page]

    def _info(self, body: Any) -> MachineInfo:
        return MachineInfo(
            machine_id=str(body["sandboxID"]),
            domain=self._domain_of(body),
            metadata=dict(body.get("metadata") or {}),
            started_at=_time(body["startedAt"]),
            end_at=_time(body["endAt"]),
            state="paused" if body.get("state") == "paused" else "running",
        )

    def _domain_of(self, body: Any) -> str:
        return str(body.get("domain") or self._domain)


def _snapshot_id(body: Any) -> str:
    return str(body["snapshotID"])


def _snapshot_names(page: Any) -> set[str]:
    return {name for each in page for name in (each["snapshotID"], *(each.get("names") or ()))}


def _measurements(body: Any) -> list[Measurement]:
    return [
        Measurement(
            at=_time(each["timestamp"]).timestamp(),
            cpu_count=int(each["cpuCount"]),
            cpu_used_pct=float(each["cpuUsedPct"]),
            memory_bytes=int(each["memUsed"]),
        )
        for each in body or ()
    ]


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _seconds(lifetime_sec: float) -> int:
    return max(ceil(lifetime_sec), SHORTEST_SEC)

"""A client for the provider's API, with retries, deadlines and a circuit breaker."""

import asyncio
import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

import httpx
import stamina
from purgatory import AsyncCircuitBreakerFactory
from purgatory.domain.model import OpenedState

from sandyard.broker.pool.model import Listed
from sandyard.broker.provider import errors
from sandyard.broker.provider.ports import Provider
from sandyard.kit.circuits import CircuitState, CircuitStore, StoredCircuits
from sandyard.kit.observability.tracing import request_hooks
from sandyard.kit.rotation import Secret

logger = logging.getLogger(__name__)

_CIRCUIT = "provider"
_PAGE = 200
_LIST_AGE_SEC = 5.0
_MAX_PAGES_WITHOUT_NEWS = 10


@dataclass(frozen=True, slots=True)
class ProviderPolicy:
    connect_timeout_sec: float
    read_timeout_sec: float
    attempts: int
    backoff_base_sec: float
    backoff_max_sec: float
    circuit_threshold: int
    circuit_timeout_sec: float


class _FaultError(Exception):
    """The provider's answer, or its absence, was not what was asked for."""


class _PassingFaultError(_FaultError):
    """A fault that may be over at the next try."""


class Credential(httpx.Auth):
    """Adds the current token to each request, if there is one."""

    def __init__(self, scheme: str, token: Secret) -> None:
        self._scheme = scheme
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        if self._token:
            request.headers["Authorization"] = f"{self._scheme} {self._token[0]}"
        yield request


class HttpProvider(Provider):
    """Calls over HTTP, under a policy. A subclass knows the calls of one dialect."""

    scheme: ClassVar[str]
    can_create: ClassVar[bool]

    def __init__(
        self,
        *,
        base_url: str,
        token: str | Secret,
        policy: ProviderPolicy,
        circuits: CircuitStore | None = None,
    ) -> None:
        """Without `circuits` the state of the circuit is local to this process."""
        secret = Secret([token] if token else []) if isinstance(token, str) else token
        self._policy = policy
        self._http = httpx.AsyncClient(
            base_url=base_url,
            auth=Credential(self.scheme, secret),
            timeout=httpx.Timeout(policy.read_timeout_sec, connect=policy.connect_timeout_sec),
            follow_redirects=False,
            verify=httpx.URL(base_url).scheme != "http",  # loading certificates takes a while
            event_hooks=request_hooks(),
        )
        limits = (policy.circuit_threshold, policy.circuit_timeout_sec)
        self._breakers = AsyncCircuitBreakerFactory(
            default_threshold=limits[0],
            default_ttl=limits[1],
            exclude=[asyncio.CancelledError],  # a disconnected caller is not the provider's fault
            uow=None if circuits is None else StoredCircuits(circuits, *limits),
        )
        self._breakers.add_listener(_log_circuit)

    async def circuit(self) -> CircuitState:
        """The state of the circuit, shared by all replicas."""
        context = (await self._breakers.get_breaker(_CIRCUIT)).context
        return CircuitState(context.state, context.failure_count or 0, context.opened_at)

    async def circuit_is_open(self) -> bool:
        return (await self.circuit()).state == "opened"

    async def close(self) -> None:
        await self._http.aclose()

    async def _get(self, path: str, params: dict[str, str | int]) -> Any:
        return _json(await self._request("GET", path, params=params))

    async def _delete(self, path: str) -> None:
        await self._request("DELETE", path, gone_is_fine=True)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, str | int] | None = None,
        gone_is_fine: bool = False,
        body: dict[str, str] | None = None,
        key: str | None = None,
        attempts: int | None = None,
    ) -> httpx.Response:
        policy = self._policy
        headers = None if key is None else {"Idempotency-Key": key}
        request = self._http.build_request(method, path, params=params, json=body, headers=headers)
        what = f"{method} {path}"
        last_fault: _FaultError | None = None
        try:
            async for attempt in stamina.retry_context(
                on=_PassingFaultError,
                attempts=attempts or policy.attempts,
                timeout=None,
                wait_initial=policy.backoff_base_sec,
                wait_max=policy.backoff_max_sec,
                wait_jitter=policy.backoff_base_sec,
            ):
                with attempt:
                    try:
                        async with await self._breakers.get_breaker(_CIRCUIT):
                            return await self._send(request, what, gone_is_fine=gone_is_fine)
                    except _FaultError as fault:
                        last_fault = fault
                        raise
        except OpenedState as error:
            if last_fault is not None:  # a request was made, and its failure opened the circuit
                raise errors.ProviderUnavailableError(reason=str(last_fault)) from error
            raise errors.CircuitOpenError(retry_after=round(policy.circuit_timeout_sec)) from error
        except _FaultError as error:
            raise errors.ProviderUnavailableError(reason=str(error)) from error
        raise AssertionError("unreachable")

    async def _send(
        self, request: httpx.Request, what: str, *, gone_is_fine: bool
    ) -> httpx.Response:
        try:
            response = await self._http.send(request)
        except httpx.RequestError as error:
            raise _PassingFaultError(f"{what}: {type(error).__name__}") from error
        if response.is_success or (gone_is_fine and response.status_code == httpx.codes.NOT_FOUND):
            return response
        passing = response.status_code == httpx.codes.TOO_MANY_REQUESTS or response.is_server_error
        kind = _PassingFaultError if passing else _FaultError
        raise kind(f"{what}: status {response.status_code}")


class GenericProvider(HttpProvider):
    """`GET /api/sandbox` in pages, `DELETE /api/sandbox/{id}`."""

    scheme = "Bearer"
    can_create = True

    async def list_sandboxes(self) -> Sequence[Listed]:
        found: dict[str, Listed] = {}
        params: dict[str, str | int] = {"limit": _PAGE}
        pages_without_news = 0
        while pages_without_news < _MAX_PAGES_WITHOUT_NEWS:
            page = await self._get("/api/sandbox", params)
            known = len(found)
            for entry in _field(page, "sandboxes", list):
                listed = _listed(entry)
                found[listed.external_id] = listed
            cursor = page.get("next_cursor")
            if not cursor:
                return list(found.values())
            if not isinstance(cursor, str | int):
                raise _unusable("its next_cursor is neither a string nor a number")
            params["cursor"] = cursor
            pages_without_news = pages_without_news + 1 if len(found) == known else 0
        raise _unusable("its list does not end")

    async def delete_sandbox(self, external_id: str) -> None:
        await self._delete(f"/api/sandbox/{_segment(external_id)}")

    async def create_sandbox(self, name: str) -> Listed:
        """Sent once: after a lost response, the caller must find out whether it was created."""
        body = {"name": name}
        return _listed(
            _json(await self._request("POST", "/api/sandbox", body=body, key=name, attempts=1))
        )

    async def has_sandbox(self, external_id: str) -> bool:
        path = f"/api/sandbox/{_segment(external_id)}"
        return (await self._request("GET", path, gone_is_fine=True)).is_success


class InfobloxProvider(HttpProvider):
    """`GET /current_user/accounts` in one request, `DELETE /sandbox/accounts/{uuid}`."""

    scheme = "Token"
    can_create = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._listing = asyncio.Lock()
        self._active: set[str] | None = None
        self._listed_at = 0.0

    async def list_sandboxes(self) -> Sequence[Listed]:
        answer = await self._get("/current_user/accounts", {})
        return [
            _listed(entry)
            for entry in _field(answer, "results", list)
            if _field(entry, "account_type", str) == "sandbox" and entry.get("state") == "active"
        ]

    async def delete_sandbox(self, external_id: str) -> None:
        account = external_id.rsplit("/", 1)[-1]
        await self._delete(f"/sandbox/accounts/{_segment(account)}")

    async def create_sandbox(self, name: str) -> Listed:
        """No such call is known."""
        raise errors.CreationNotSupportedError(details={"name": name})

    async def has_sandbox(self, external_id: str) -> bool:
        """Reads the list of all accounts, which is cached for a few seconds."""
        now = asyncio.get_running_loop().time()
        async with self._listing:
            if self._active is None or now >= self._listed_at + _LIST_AGE_SEC:
                listed = await self.list_sandboxes()
                self._active, self._listed_at = {each.external_id for each in listed}, now
            return external_id in self._active


DIALECTS: Mapping[str, type[HttpProvider]] = {
    "generic": GenericProvider,
    "infoblox": InfobloxProvider,
}


def _unusable(reason: str) -> errors.ProviderUnavailableError:
    return errors.ProviderUnavailableError(reason=reason)


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except (ValueError, RecursionError) as error:
        raise _unusable("its response is not JSON") from error


def _field(entry: Any, name: str, kind: type) -> Any:
    value = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, kind):
        raise _unusable(f"its response lacks the {kind.__name__} `{name}`")
    return value


def _listed(entry: Any) -> Listed:
    """An id must be storable as it is; from a name, unstorable characters are removed."""
    external_id: str = _field(entry, "id", str)
    if not external_id or external_id != _storable(external_id):
        raise _unusable("its response has an id that is empty or not a string")
    name = entry.get("name")
    return Listed(external_id, (_storable(name) if isinstance(name, str) else "") or external_id)


def _storable(text: str) -> str:
    """Removes NUL and lone surrogates, which engines refuse."""
    return text.replace("\0", "").encode(errors="ignore").decode()


def _segment(text: str) -> str:
    return quote(text, safe="")


def _log_circuit(_name: str, event: str, details: Any) -> None:
    if event == "state_changed":
        logger.warning(
            "provider circuit breaker is now %s", details.state, extra={"action": "circuit"}
        )

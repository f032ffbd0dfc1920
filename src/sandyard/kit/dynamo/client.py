"""Calls to DynamoDB: signed, retried with jitter under one deadline, with typed outcomes."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
from aiodynamo.credentials import Credentials
from aiodynamo.http.aiohttp import AIOHTTP
from aiodynamo.http.types import Request, RequestFailed
from aiodynamo.sign import signed_dynamo_request
from purgatory import AsyncCircuitBreakerFactory
from purgatory.domain.model import OpenedState
from yarl import URL

from sandyard.kit.dynamo.values import Item, plain_or_none
from sandyard.kit.errors import UnavailableError


class _QuietCredentialProviders(logging.Filter):
    """A credential provider without credentials is not an error: the next one is tried, and our own
    error reports it if none has any. A malformed credentials file needs only one line."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = None
        return not str(record.msg).startswith("Candidate %r failed")


logging.getLogger("aiodynamo").addFilter(_QuietCredentialProviders())

_CIRCUIT = "dynamodb"
_CONNECTIONS = 256
_AN_ERROR = "returns an error"
_PASSING = {
    "ThrottlingException": "throttles requests",
    "ProvisionedThroughputExceededException": "throttles requests",
    "RequestLimitExceeded": "throttles requests",
    "LimitExceededException": "throttles requests",
    "ThrottlingError": "throttles requests",
    "ProvisionedThroughputExceeded": "throttles requests",
    "TransactionConflictException": "is busy with other transactions",
    "TransactionInProgressException": "is busy with other transactions",
    "TransactionConflict": "is busy with other transactions",
    "InternalServerError": _AN_ERROR,
    "ServiceUnavailable": _AN_ERROR,
}
"""Codes of faults that may be over at the next try, of calls and of actions of a transaction, with
the message for callers."""
_NO_ANSWER = "does not respond in time"
_STALE_CREDENTIALS = frozenset({"ExpiredTokenException", "ExpiredToken"})


@dataclass(frozen=True, slots=True)
class DynamoPolicy:
    """Time limits for a whole call and for one attempt, and the delays between attempts."""

    deadline_sec: float = 8.0
    try_sec: float = 3.0
    backoff_base_sec: float = 0.025
    backoff_max_sec: float = 0.8
    circuit_threshold: int = 5
    circuit_timeout_sec: float = 5.0
    probe_sec: float = 1.5


class ConditionFailedError(Exception):
    """The condition of a single write did not hold; `item` is what stood there."""

    def __init__(self, item: Item | None) -> None:
        super().__init__("condition failed")
        self.item = item


@dataclass(frozen=True, slots=True)
class Reason:
    """The outcome of one action of a cancelled transaction: the reason that it failed, or that it
    did not fail."""

    code: str
    item: Item | None

    @property
    def is_condition(self) -> bool:
        return self.code == "ConditionalCheckFailed"


class TransactionRefusedError(Exception):
    """Conditions of a transaction did not hold; nothing of it was carried out."""

    def __init__(self, reasons: Sequence[Reason]) -> None:
        super().__init__(", ".join(reason.code for reason in reasons))
        self.reasons = reasons


class TableMissingError(UnavailableError):
    """The DynamoDB table does not exist. Run `sandyard tables create`, or check AWS_REGION."""


class _PassingError(Exception):
    """A fault that may be over at the next try; `trouble` is what callers are told of it."""

    def __init__(self, said: str, trouble: str) -> None:
        super().__init__(said)
        self.trouble = trouble

    @classmethod
    def of(cls, *codes: str) -> "_PassingError":
        trouble = next((_PASSING[each] for each in codes if each in _PASSING), _AN_ERROR)
        return cls(", ".join(codes), trouble)


class Dynamo:
    """The engine. Every call either succeeds, raises one of the errors above, or raises
    UnavailableError.

    A write whose response was lost is retried, so callers must give their writes conditions that
    distinguish a retry from a first attempt.
    """

    name = "dynamodb"

    def __init__(
        self,
        *,
        region: str,
        endpoint_url: str | None = None,
        policy: DynamoPolicy | None = None,
        credentials: Credentials | None = None,
        http: AIOHTTP | None = None,
    ) -> None:
        self._region = region
        self._endpoint = URL(endpoint_url) if endpoint_url else None
        self._policy = policy or DynamoPolicy()
        self._credentials = credentials or Credentials.auto()
        self._http = http
        self._last_trouble = _NO_ANSWER
        self._breakers = AsyncCircuitBreakerFactory(
            default_threshold=self._policy.circuit_threshold,
            default_ttl=self._policy.circuit_timeout_sec,
            exclude=[
                ConditionFailedError,
                TransactionRefusedError,
                ValueError,
                UnavailableError,  # keeps the message about a missing table or credentials
                asyncio.CancelledError,
            ],
        )

    async def call(self, action: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """One call, retried until its deadline."""
        policy = self._policy
        breaker = await self._breakers.get_breaker(_CIRCUIT)
        try:
            async with breaker, asyncio.timeout(policy.deadline_sec):
                return await self._try_until_answered(action, payload, policy.deadline_sec)
        except OpenedState as error:
            raise UnavailableError(
                f"DynamoDB failed too often (it {self._last_trouble}) and is not called for a "
                "moment. Try again shortly.",
                retry_after=max(1, round(policy.circuit_timeout_sec)),
            ) from error
        except (_PassingError, TimeoutError) as error:
            self._last_trouble = _trouble(error)
            raise _unavailable(action, error) from error

    async def probe(self, action: str, payload: Mapping[str, Any]) -> None:
        """One call with brief retries, to check whether the engine accepts it; UnavailableError
        names the call and the reason. Bypasses the circuit breaker and does not affect it."""
        probe_sec = self._policy.probe_sec
        try:
            async with asyncio.timeout(probe_sec):
                await self._try_until_answered(action, payload, probe_sec)
        except (_PassingError, TimeoutError) as error:
            raise _unavailable(action, error) from error

    async def close(self) -> None:
        if self._http is not None:
            await self._http.session.close()

    async def _try_until_answered(
        self, action: str, payload: Mapping[str, Any], deadline_sec: float
    ) -> dict[str, Any]:
        policy = self._policy
        wait = policy.backoff_base_sec
        loop = asyncio.get_running_loop()
        last_start = loop.time() + deadline_sec - min(policy.backoff_max_sec, deadline_sec / 10)
        while True:
            try:
                return await self._send(action, payload)
            except _PassingError:
                pause = random.uniform(wait / 2, wait)  # noqa: S311 - jitter, no secret
                if loop.time() + pause > last_start:
                    raise
            await asyncio.sleep(pause)
            wait = min(wait * 2, policy.backoff_max_sec)

    async def _send(self, action: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        http = self._open()
        key = await self._credentials.get_key(http)
        if key is None:
            raise UnavailableError(
                "No AWS credentials were found. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "or run where a profile or a role provides them."
            )
        signed = signed_dynamo_request(
            key=key,
            payload=payload,
            action=action,
            region=self._region,
            endpoint=self._endpoint,
        )
        try:
            response = await http(Request("POST", str(signed.url), signed.headers, signed.body))
        except (RequestFailed, TimeoutError, OSError) as error:
            inner = error.inner if isinstance(error, RequestFailed) else error
            said = f"{type(inner).__name__}: {inner}"
            raise _PassingError(said, _NO_ANSWER) from error
        answer = _json(response.body)
        if response.status == 200 and isinstance(answer, dict):
            return answer
        self._raise(response.status, answer)
        raise AssertionError("unreachable")

    def _raise(self, status: int, answer: Any) -> None:
        kind = answer.get("__type", "").split("#")[-1] if isinstance(answer, dict) else ""
        message = answer.get("message") or answer.get("Message") or "" if kind else ""
        if kind in _STALE_CREDENTIALS and self._credentials.invalidate():
            raise _PassingError.of(kind)
        if kind in _PASSING or status >= 500:
            raise _PassingError.of(kind or f"status {status}")
        match kind:
            case "ConditionalCheckFailedException":
                raise ConditionFailedError(plain_or_none(answer.get("Item")))
            case "TransactionCanceledException":
                _raise_refused(answer)
            case "ResourceNotFoundException":
                raise TableMissingError(reason=message)
            case "ValidationException" | "SerializationException":
                raise ValueError(f"DynamoDB rejects the request: {message}")
            case "":
                raise UnavailableError(
                    "The DynamoDB endpoint does not respond like DynamoDB. "
                    "Check DDB_ENDPOINT_URL and AWS_REGION.",
                    reason=f"status {status}",
                )
            case _:
                raise UnavailableError(
                    "DynamoDB denies access. Check the AWS credentials and their permissions.",
                    reason=f"{kind}: {message}",
                )

    def _open(self) -> AIOHTTP:
        if self._http is None:
            self._http = AIOHTTP(
                aiohttp.ClientSession(
                    timeout=aiohttp.ClientTimeout(total=self._policy.try_sec),
                    connector=aiohttp.TCPConnector(limit=_CONNECTIONS),
                )
            )
        return self._http


def _unavailable(action: str, error: _PassingError | TimeoutError) -> UnavailableError:
    return UnavailableError(
        f"DynamoDB {_trouble(error)} ({action}). Try again shortly.",
        reason=f"{action}: {str(error) or 'deadline passed'}",
    )


def _trouble(error: _PassingError | TimeoutError) -> str:
    return error.trouble if isinstance(error, _PassingError) else _NO_ANSWER


def _raise_refused(answer: Mapping[str, Any]) -> None:
    reasons = [
        Reason(reason.get("Code", "None"), plain_or_none(reason.get("Item")))
        for reason in answer.get("CancellationReasons", [])
    ]
    if any(reason.is_condition for reason in reasons):
        raise TransactionRefusedError(reasons)
    codes = {reason.code for reason in reasons}
    if codes & _PASSING.keys():
        raise _PassingError.of(*sorted(codes - {"None"}))
    raise ValueError(f"DynamoDB rejects the transaction: {sorted(codes)}")


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except ValueError:
        return None


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """A single deadline for all calls inside the block."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise UnavailableError(f"DynamoDB {_NO_ANSWER}. Try again shortly.") from error

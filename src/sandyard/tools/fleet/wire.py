"""A fleet's connections, which lose responses: how fast boards send, how long they wait after a
failure, and when they give up."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx

from sandyard.kit.errors import SandyardError
from sandyard.kit.wired import wired

CONNECTIONS = 50
_TIMEOUT_SEC = 10
_WORKING_SEC = 0.01
"""A connection is broken off within this time after the whole request was sent."""


_FIRST_WAIT_SEC = 0.05
_LONGEST_WAIT_SEC = 2.0
_LONGEST_OBEYED_SEC = 10.0


class ServerRefusedError(SandyardError):
    """The server refused a call of the fleet. Check the URL and the token."""


class ServerNotFoundError(SandyardError):
    """No server answers. Start one with `sandyard serve`, or give the --url of one that runs."""


class NoProgressError(SandyardError):
    """The server gave no useful answer for too long. Look at its log, or raise --stall-timeout."""


class StallTimeout:
    """Shared by the fleet: it expires when no board has made progress for this long."""

    def __init__(self, seconds: float, *, rng: Random) -> None:
        self.seconds = seconds
        self.rng = rng
        self.last_progress_at = time.monotonic()
        self.last_failure = ""

    def progress(self) -> None:
        self.last_progress_at = time.monotonic()


class Trouble:
    """One board's consecutive failures."""

    def __init__(self, stall_timeout: StallTimeout) -> None:
        self._stall_timeout = stall_timeout
        self._failures = 0
        self._since = 0.0

    def over(self) -> None:
        self._failures = 0
        self._stall_timeout.progress()

    async def wait(self, *, retry_after_sec: float = 0) -> None:
        """Wait before the next attempt, longer each time; eventually raises NoProgressError."""
        now = time.monotonic()
        if not self._failures:
            self._since = now
        stuck_sec = now - max(self._since, self._stall_timeout.last_progress_at)
        if stuck_sec > self._stall_timeout.seconds:
            raise NoProgressError(
                f"No progress for {stuck_sec:.0f} seconds, the last failure was: "
                f"{self._stall_timeout.last_failure}. Check the server's log."
            )
        wait_sec = wait_before_retry(self._failures, self._stall_timeout.rng)
        self._failures += 1
        await asyncio.sleep(max(wait_sec, min(retry_after_sec, _LONGEST_OBEYED_SEC)))


def wait_before_retry(failures: int, rng: Random) -> float:
    """Seconds: a random time between half and all of a delay that doubles up to a maximum."""
    longest = min(_LONGEST_WAIT_SEC, _FIRST_WAIT_SEC * 2 ** min(failures, 10))
    return rng.uniform(longest / 2, longest)


@wired
class Pace:
    """Limits the rate of readings; 0 is unlimited.

    `now` and `sleep` are in seconds of one clock."""

    readings_per_sec: float
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._next_at = 0.0

    async def wait(self, readings: int) -> None:
        if not self.readings_per_sec:
            return
        now = self.now()
        starts_at = max(now, self._next_at)
        self._next_at = starts_at + readings / self.readings_per_sec
        await self.sleep(starts_at - now)


class _BrokenOffError(Exception):
    """The board lost its radio while the server worked."""


@dataclass(slots=True)
class RequestCounters:
    requests: int = 0
    answers_lost: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """No response, or one that asks for a retry."""

    retry_after_sec: float = 0


class Wire:
    """Calls to one server, at most `CONNECTIONS` at a time."""

    def __init__(
        self, url: str, *, lost_answers: float, stall_timeout: StallTimeout, rng: Random
    ) -> None:
        self.counters = RequestCounters()
        self.url = url
        self._stall_timeout = stall_timeout
        self._lost_answers = lost_answers
        self._rng = rng
        # One client per connection: the cost of a call in a shared pool grows with its size.
        trusted = httpx.create_ssl_context()
        self._clients = [
            httpx.AsyncClient(
                base_url=url.rstrip("/") + "/telemetry/v1",
                timeout=_TIMEOUT_SEC,
                limits=httpx.Limits(max_connections=1),
                verify=trusted,
            )
            for _ in range(CONNECTIONS)
        ]
        self._free: asyncio.LifoQueue[httpx.AsyncClient] = asyncio.LifoQueue()
        for client in self._clients:
            self._free.put_nowait(client)

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()

    def trouble(self) -> Trouble:
        return Trouble(self._stall_timeout)

    @property
    def last_failure(self) -> str:
        return self._stall_timeout.last_failure

    async def call(self, method: str, path: str, **options: Any) -> Any:
        """Call until there is a response; returns its JSON, None for a 404."""
        trouble = self.trouble()
        while isinstance(answer := await self.attempt(method, path, **options), Failed):
            self.counters.retries += 1
            await trouble.wait(retry_after_sec=answer.retry_after_sec)
        trouble.over()
        return answer

    async def attempt(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        body: object = None,
        params: Mapping[str, str | int] | None = None,
        may_get_lost: bool = False,
    ) -> Any:
        """The response's JSON, None for a 404, or Failed. Raises ServerRefusedError."""
        is_lost = may_get_lost and self._rng.random() < self._lost_answers
        # Half of the lost responses arrive and are discarded, half never arrive.
        breaks_off = is_lost and self._rng.random() < 0.5
        extensions = {"trace": self._break_off} if breaks_off else {}
        client = await self._free.get()
        try:
            self.counters.requests += 1
            response = await client.request(
                method, path, headers=headers, json=body, params=params, extensions=extensions
            )
        except _BrokenOffError:
            return self._lost()
        except httpx.RequestError as error:
            return self._failed(f"{type(error).__name__} {error}".strip())
        finally:
            self._free.put_nowait(client)
        return self._lost() if is_lost else self._parse_response(response)

    async def _break_off(self, event: str, _details: object) -> None:
        """Called by httpx at each step; disconnect once the server has the whole request."""
        if event == "http11.receive_response_headers.started":
            await asyncio.sleep(self._rng.uniform(0, _WORKING_SEC))
            raise _BrokenOffError

    def _parse_response(self, response: httpx.Response) -> Any:
        if response.is_server_error or response.status_code == httpx.codes.TOO_MANY_REQUESTS:
            retry_after = response.headers.get("Retry-After", "")
            return self._failed(
                _in_words(response), int(retry_after) if retry_after.isdecimal() else 0
            )
        if response.status_code == httpx.codes.NOT_FOUND:
            return None
        if not response.is_success:
            raise ServerRefusedError(f"The server refused a call: {_in_words(response)}")
        try:
            return response.json()
        except ValueError as error:
            raise ServerRefusedError(
                f"{response.request.url} does not return JSON. Check the --url."
            ) from error

    def _lost(self) -> Failed:
        self.counters.answers_lost += 1
        return self._failed("an answer got lost")

    def _failed(self, why: str, retry_after_sec: float = 0) -> Failed:
        self._stall_timeout.last_failure = why
        return Failed(retry_after_sec)


def _in_words(response: httpx.Response) -> str:
    """The status, and the message if the server is one of ours."""
    try:
        message = " " + response.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = ""
    request = response.request
    return f"{request.method} {request.url.path} got {response.status_code}{message}"

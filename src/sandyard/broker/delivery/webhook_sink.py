"""A webhook as a sink: signed requests, as in Standard Webhooks.

Addresses are checked when a connection is made. Redirects are not followed, so neither a redirect
nor a name that changes its address leads to an address that is not public.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import orjson

from sandyard.broker.delivery.errors import SinkError, WebhookAddressError
from sandyard.broker.delivery.model import Attempt, Webhook, signatures
from sandyard.kit.changes.events import LoggedEvent
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.tasks import Background
from sandyard.kit.http.events import EventAnswer
from sandyard.kit.ids import EventIds
from sandyard.kit.public_addresses import Network, checked_socket, may_connect
from sandyard.kit.wired import wired

if TYPE_CHECKING:  # imported where it is used: most servers have no webhook
    import aiohttp

logger = logging.getLogger(__name__)

_PARALLEL = 8
_GONE = 410
_LOG_SEC = 1.0


class WebhookClient:
    """Posts to the URLs of all webhooks."""

    def __init__(self, *, timeout_sec: float, allowed: Sequence[Network], clock: Clock) -> None:
        self._timeout_sec = timeout_sec
        self._allowed = allowed
        self._clock = clock
        self._make_id = EventIds()
        self._session: aiohttp.ClientSession | None = None

    def require_public(self, url: str) -> None:
        """Raises WebhookAddressError if the URL has a forbidden address: one that is private or
        this machine's own. Names are resolved and checked when a connection is made."""
        host = urlsplit(url).hostname or ""
        with suppress(ValueError):  # not an address but a name
            if not may_connect(host, allowed=self._allowed):
                raise WebhookAddressError

    async def post(self, webhook: Webhook, logged: LoggedEvent) -> Attempt:
        """Make one delivery attempt; failures are part of the result."""
        now_ms = int(self._clock.now() * 1000)
        started = time.perf_counter()
        status, error = await self._post(webhook, logged, now_ms)
        return Attempt(
            attempt_id=self._make_id(now_ms),
            webhook_id=webhook.webhook_id,
            event_id=logged.event_id,
            kind=logged.event.kind,
            subject=logged.event.subject,
            at_ms=now_ms,
            duration_ms=int((time.perf_counter() - started) * 1000),
            status=status,
            error=error,
        )

    async def _post(
        self, webhook: Webhook, logged: LoggedEvent, now_ms: int
    ) -> tuple[int | None, str | None]:
        import aiohttp

        body = body_of(logged)
        headers = headers_of(webhook, logged.event_id, now_ms, body)
        try:
            async with self._open().post(
                webhook.url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                status = answer.status
        except WebhookAddressError as error:
            return None, error.message
        except TimeoutError:
            return None, "no answer in time"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return None, f"{type(error).__name__}: {error}"[:200]
        return status, None if 200 <= status < 300 else f"answered {status}"

    def _open(self) -> "aiohttp.ClientSession":
        import aiohttp

        if self._session is None:
            check = checked_socket(self._allowed, WebhookAddressError)
            connector = aiohttp.TCPConnector(socket_factory=check, limit=0)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=self._timeout_sec),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "sandyard-webhooks"},
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def body_of(logged: LoggedEvent) -> bytes:
    """The payload that Standard Webhooks recommends; `data` is the event as in the API."""
    event = EventAnswer.of(logged).model_dump(mode="json")
    return orjson.dumps({"type": logged.event.kind, "timestamp": event["at"], "data": event})


def headers_of(webhook: Webhook, event_id: str, now_ms: int, body: bytes) -> dict[str, str]:
    at_sec = now_ms // 1000
    return {
        "content-type": "application/json",
        "webhook-id": event_id,
        "webhook-timestamp": str(at_sec),
        "webhook-signature": signatures(webhook.secrets_at(now_ms), event_id, at_sec, body),
    }


@wired
class WebhookSink:
    """Sends to one webhook; attempts are logged with a short delay, in batches."""

    parallel = _PARALLEL

    webhook: Webhook
    client: WebhookClient
    log: Callable[[Sequence[Attempt]], Awaitable[None]]
    disable: Callable[[str, str], Awaitable[bool]]

    def __post_init__(self) -> None:
        self.name = self.webhook.webhook_id
        self.since_ms: int | None = self.webhook.created_at_ms
        self.kinds = self.webhook.kind_list
        self._tried: list[Attempt] = []
        self._background = Background()

    async def send(self, logged: LoggedEvent) -> None:
        attempt = await self.client.post(self.webhook, logged)
        self._tried.append(attempt)
        if len(self._tried) == 1:
            self._background.start(self._write_log_soon(), action="log deliveries")
        if attempt.status == _GONE:
            await self.give_up("answered 410: it is gone")
        if attempt.error is not None:
            raise SinkError(attempt.error)

    async def give_up(self, reason: str) -> bool:
        logger.error("a webhook is disabled: %s", reason, extra={"sink": self.name})
        return await self.disable(self.name, reason)

    async def close(self) -> None:
        await self._background.finish()

    async def _write_log_soon(self) -> None:
        await asyncio.sleep(_LOG_SEC)
        tried, self._tried = self._tried, []
        await self.log(tried)

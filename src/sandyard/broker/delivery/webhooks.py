"""Webhooks: as operators create, change and test them, and as sinks: signed requests, as in
Standard Webhooks.

Addresses are checked when a connection is made. Redirects are not followed, so neither a redirect
nor a name that changes its address leads to an address that is not public.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from sandyard.broker.delivery import errors, model
from sandyard.broker.delivery.errors import SinkError, WebhookAddressError
from sandyard.broker.delivery.model import Attempt, Webhook, signatures
from sandyard.broker.delivery.ports import DeliveryStore
from sandyard.broker.pool.model import OPERATOR
from sandyard.broker.pool.ports import PoolStore
from sandyard.kit import ids
from sandyard.kit.changes.event_kinds import require_known_kinds
from sandyard.kit.changes.events import LoggedEvent, actor
from sandyard.kit.changes.transitions import Cause, Transition, change_entity
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.tasks import Background
from sandyard.kit.http.events import EventAnswer
from sandyard.kit.ids import EventIds
from sandyard.kit.paging import Page, page_in_order
from sandyard.kit.public_addresses import Network, checked_socket, may_connect
from sandyard.kit.wired import wired

if TYPE_CHECKING:  # imported where it is used: most servers have no webhook
    import aiohttp

logger = logging.getLogger(__name__)

_PARALLEL = 8
_GONE = 410
_LOG_SEC = 1.0
Decide = Callable[[model.Webhook | None, Cause], Transition[model.Webhook] | None]
Post = Callable[[model.Webhook, LoggedEvent], Awaitable[model.Attempt]]


@wired
class Webhooks:
    """`find_event` searches all logs; `post` makes one delivery attempt; `require_public` raises
    WebhookAddressError for a URL to which nothing may be sent."""

    pool: PoolStore
    store: DeliveryStore
    clock: Clock
    find_event: Callable[[str], Awaitable[LoggedEvent | None]]
    post: Post
    require_public: Callable[[str], None]
    is_on: bool = True

    def __post_init__(self) -> None:
        self._lock = asyncio.Lock()

    async def create(
        self, *, url: str, kinds: Sequence[str], note: str | None, by: str = OPERATOR
    ) -> model.Webhook:
        """The webhook receives all events written from now on. Raises WebhooksOffError,
        UnknownEventKindError and WebhookAddressError."""
        self._require_on()
        require_known_kinds(kinds)
        self.require_public(url)
        cause = Cause.by(by, self.clock)
        webhook = model.Webhook(
            webhook_id=ids.resource_id("whk"),
            url=url,
            created_at_ms=cause.at_ms,
            kinds=",".join(kinds),
            note=note,
            secret=_new_secret(),
        )
        transition = model.decide_created(webhook, cause)
        if not await self.pool.apply_together(transition):
            raise errors.WebhookBusyError
        return transition.result

    async def page(self, *, limit: int, cursor: str | None) -> Page[model.Webhook]:
        webhooks = await self.store.webhooks()
        return page_in_order(
            webhooks, lambda each: each.webhook_id, listing="webhooks", limit=limit, cursor=cursor
        )

    async def get(self, webhook_id: str) -> tuple[model.Webhook, Sequence[model.StreamState]]:
        return await self._get(webhook_id), await self.store.streams(webhook_id)

    async def change(self, webhook_id: str, *, by: str = OPERATOR, **changes: Any) -> model.Webhook:
        """None leaves a field unchanged. A webhook that is enabled again continues at its position.
        Raises UnknownEventKindError and WebhookAddressError."""
        require_known_kinds(filter(None, (changes.get("kinds") or "").split(",")))
        if changes.get("url") is not None:
            self.require_public(changes["url"])
        return await self._change(
            webhook_id,
            lambda webhook, cause: model.decide_changed(webhook, cause, **changes),
            by=by,
        )

    async def rotate_secret(self, webhook_id: str, *, by: str = OPERATOR) -> model.Webhook:
        secret = _new_secret()
        return await self._change(
            webhook_id, lambda webhook, cause: model.decide_rotated(webhook, secret, cause), by=by
        )

    async def disable(self, webhook_id: str, reason: str) -> bool:
        """It has failed for too long; True if nothing more is sent to it."""
        await self._change(
            webhook_id,
            lambda webhook, cause: model.decide_given_up(webhook, reason, cause),
            by=actor("job", "deliver"),
        )
        return True

    async def delete(self, webhook_id: str, *, by: str = OPERATOR) -> None:
        await self._change(webhook_id, model.decide_removed, by=by)
        await self.store.forget_sink(webhook_id)

    async def replay(self, webhook_id: str, event_id: str) -> model.Attempt:
        """Send one event again, once and now. Raises WebhooksOffError and EventNotFoundError."""
        self._require_on()
        webhook = await self._get(webhook_id)
        logged = await self.find_event(event_id)
        if logged is None:
            raise errors.EventNotFoundError
        attempt = await self.post(webhook, logged)
        await self.store.log_attempts([attempt])
        return attempt

    async def attempts(
        self, webhook_id: str, *, limit: int, cursor: str | None
    ) -> Page[model.Attempt]:
        await self._get(webhook_id)
        return await self.store.attempts(webhook_id, limit=limit, cursor=cursor)

    def _require_on(self) -> None:
        if not self.is_on:
            raise errors.WebhooksOffError

    async def _get(self, webhook_id: str) -> model.Webhook:
        webhook = None
        if ids.is_resource_id("whk", webhook_id):
            webhook = await self.store.find_webhook(webhook_id)
        if webhook is None:
            raise errors.WebhookNotFoundError
        return webhook

    async def _change(self, webhook_id: str, decide: Decide, *, by: str) -> model.Webhook:
        return await change_entity(
            lambda: self.store.find_webhook(webhook_id),
            lambda webhook: decide(webhook, Cause.by(by, self.clock)),
            self.pool.apply_together,
            busy=errors.WebhookBusyError,
            lock=self._lock,
        )


def _new_secret() -> str:
    return model.secret_of(secrets.token_bytes(model.SECRET_BYTES))


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

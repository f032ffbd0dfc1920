"""Webhooks as operators create, change and test them."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sandyard.broker.delivery import errors, model
from sandyard.broker.delivery.ports import DeliveryStore
from sandyard.broker.pool.model import OPERATOR
from sandyard.broker.pool.ports import PoolStore
from sandyard.kit import ids
from sandyard.kit.changes.event_kinds import require_known_kinds
from sandyard.kit.changes.events import LoggedEvent, actor
from sandyard.kit.changes.transitions import Cause, Transition, change_entity
from sandyard.kit.clock import Clock
from sandyard.kit.paging import Page, page_in_order
from sandyard.kit.wired import wired

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

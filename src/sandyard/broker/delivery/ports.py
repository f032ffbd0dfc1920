"""The port to the storage of event delivery."""

from collections.abc import Sequence
from typing import Protocol

from sandyard.broker.delivery.model import Attempt, StreamState, Webhook
from sandyard.kit.paging import Page


class DeliveryStore(Protocol):
    """Webhooks, the positions of sinks, and delivery attempts. Returned results are durable; every
    method raises UnavailableError if the engine is unavailable. Webhooks are changed by
    `PoolStore.apply_together`."""

    async def find_webhook(self, webhook_id: str) -> Webhook | None:
        """As last committed."""

    async def webhooks(self) -> Sequence[Webhook]:
        """All webhooks, as last committed, ordered by id. There are few."""

    async def find_stream(self, sink: str, part: str) -> StreamState | None: ...

    async def streams(self, sink: str) -> Sequence[StreamState]:
        """The sink's position in each part's log."""

    async def save_stream(self, state: StreamState) -> None: ...

    async def forget_sink(self, sink: str) -> None:
        """Remove its streams and, for a webhook, its attempts."""

    async def log_attempts(self, attempts: Sequence[Attempt]) -> None: ...

    async def attempts(self, webhook_id: str, *, limit: int, cursor: str | None) -> Page[Attempt]:
        """Newest first."""

    async def drop_attempts(self, *, before_ms: int) -> None:
        """Remove attempts older than this."""

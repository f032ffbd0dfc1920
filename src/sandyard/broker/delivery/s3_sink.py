"""The audit stream: each part's events as JSON lines in S3, one object per hour.

An hour is written completely, once it is settled, under a name derived from it; writing it twice
gives the same object. Events are ordered by id.
"""

import asyncio
import logging
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import IO
from urllib.parse import urlsplit

from sandyard.broker.delivery.aws_sinks import AwsClient, message_of
from sandyard.broker.delivery.errors import SinkError
from sandyard.broker.delivery.model import StreamState, wants
from sandyard.broker.delivery.ports import DeliveryStore
from sandyard.broker.delivery.stream import StreamPolicy
from sandyard.kit.changes.events import SETTLED_MS, EventLog
from sandyard.kit.clock import Clock

logger = logging.getLogger(__name__)

HOUR_MS = 3_600_000
_POLL_SEC = 30.0


class S3Sink:
    name = "s3"

    def __init__(self, url: str, *, kinds: Sequence[str], region: str) -> None:
        address = urlsplit(url)
        self.kinds = kinds
        self._bucket = address.netloc
        self._prefix = address.path.strip("/")
        self._client = AwsClient("s3", region=region)

    def key(self, part: str, hour_ms: int) -> str:
        hour = datetime.fromtimestamp(hour_ms / 1000, UTC)
        return "/".join(filter(None, [self._prefix, part, f"{hour:%Y/%m/%d/%H}.jsonl"]))

    async def put(self, key: str, file: IO[bytes]) -> None:
        await self._client.call(
            lambda client: client.upload_fileobj(
                file, self._bucket, key, ExtraArgs={"ContentType": "application/x-ndjson"}
            )
        )

    async def close(self) -> None:
        await self._client.close()


class S3Stream:
    """Delivers one part's log to S3."""

    def __init__(
        self,
        sink: S3Sink,
        log: EventLog,
        store: DeliveryStore,
        *,
        clock: Clock,
        policy: StreamPolicy,
    ) -> None:
        self._sink = sink
        self._log = log
        self._store = store
        self._clock = clock
        self._policy = policy
        self.delivered = 0

    async def follow(self) -> None:
        """Write each hour after it has settled, until cancelled. Raises UnavailableError."""
        failures = 0
        while True:
            try:
                await self.drain()
                failures = 0
            except SinkError as error:
                failures += 1
                logger.warning("a sink does not take events: %s", error.message)
            wait = self._policy.retry.delay(failures, 1) if failures else _POLL_SEC
            await asyncio.sleep(wait)

    async def drain(self) -> None:
        """Write the settled hours. Raises SinkError."""
        state = await self._begin()
        settled_ms = int(self._clock.now() * 1000) - 2 * SETTLED_MS
        hour_ms = int(state.position or 0)
        while hour_ms + HOUR_MS <= settled_ms:
            try:
                self.delivered += await self._write(hour_ms)
            except SinkError as error:
                self._policy.on_sent(self._sink.name, "failed")
                await self._failed(state, error)
                raise
            hour_ms += HOUR_MS
            state = replace(state, position=str(hour_ms), failing_since_ms=None, last_error=None)
            await self._store.save_stream(state)

    async def _begin(self) -> StreamState:
        """Starts with the hour in which the sink was first seen."""
        state = await self._store.find_stream(self._sink.name, self._log.part)
        if state is None:
            now_ms = int(self._clock.now() * 1000)
            first = str(now_ms // HOUR_MS * HOUR_MS)
            state = StreamState(self._sink.name, self._log.part, now_ms, first)
            await self._store.save_stream(state)
        return state

    async def _write(self, hour_ms: int) -> int:
        """Write an object with the hour's events, if there are any; returns how many."""
        written = 0
        with tempfile.TemporaryFile() as file:
            async for events in self._log.between(from_ms=hour_ms, to_ms=hour_ms + HOUR_MS):
                lines = [
                    message_of(each) + "\n"
                    for each in events
                    if wants(self._sink.kinds, each.event.kind)
                ]
                file.write("".join(lines).encode())
                written += len(lines)
            if written:
                file.seek(0)
                await self._sink.put(self._sink.key(self._log.part, hour_ms), file)
                self._policy.on_sent(self._sink.name, "delivered")
        return written

    async def _failed(self, state: StreamState, error: SinkError) -> None:
        if state.failing_since_ms is None:
            now_ms = int(self._clock.now() * 1000)
            failing = replace(state, failing_since_ms=now_ms, last_error=error.message)
            await self._store.save_stream(failing)

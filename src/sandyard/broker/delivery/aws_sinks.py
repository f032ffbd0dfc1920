"""SQS, SNS and S3 as sinks. The AWS client is imported where it is used, and runs in threads."""

import asyncio
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import IO, Any
from urllib.parse import urlsplit

from sandyard.broker.delivery.errors import SinkError
from sandyard.broker.delivery.model import StreamState, wants
from sandyard.broker.delivery.stream import SinkStream
from sandyard.kit.changes.events import SETTLED_MS, LoggedEvent
from sandyard.kit.concurrency.batching import Batcher
from sandyard.kit.http.events import EventAnswer

logger = logging.getLogger(__name__)

HOUR_MS = 3_600_000
_POLL_SEC = 30.0
_BATCH = 10
"""The batch limit of AWS."""
_PARALLEL_CALLS = 4
_TOO_LONG = "BatchRequestTooLong"


class AwsClient:
    """A client of one AWS service, created at its first call; `AWS_ENDPOINT_URL` and the
    credentials are read as boto3 does."""

    def __init__(self, service: str, *, region: str) -> None:
        self._service = service
        self._region = region
        self._threads = ThreadPoolExecutor(_PARALLEL_CALLS, thread_name_prefix=service)
        self._made: Any = None

    async def call(self, work: Callable[[Any], Any]) -> Any:
        """Run `work` with the client and return its result. Raises SinkError if AWS fails."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._call, work)

    def _call(self, work: Callable[[Any], Any]) -> Any:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return work(self._client())
        except (Boto3Error, BotoCoreError, ClientError, OSError) as error:
            raise SinkError(f"{self._service}: {error}"[:300]) from error

    def _client(self) -> Any:
        if self._made is None:
            import boto3
            from botocore.config import Config

            config = Config(connect_timeout=5, read_timeout=15, retries={"total_max_attempts": 1})
            session: Any = boto3.Session()
            self._made = session.client(self._service, region_name=self._region, config=config)
        return self._made

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Service:
    """How AWS names the call, and what it sends."""

    call: str
    address: str
    entries: str
    body: str


_SERVICES = {
    "sqs": _Service("send_message_batch", "QueueUrl", "Entries", "MessageBody"),
    "sns": _Service("publish_batch", "TopicArn", "PublishBatchRequestEntries", "Message"),
}


class AwsSink:
    """An SQS queue or SNS topic. The events of a batch have different subjects, so that one which
    AWS refuses is not overtaken by a later one of its subject."""

    parallel = _BATCH * _PARALLEL_CALLS
    since_ms: int | None = None

    def __init__(self, name: str, address: str, *, kinds: Sequence[str], region: str) -> None:
        self.name = name
        self.kinds = kinds
        self._address = address
        self._service = _SERVICES[name]
        self._client = AwsClient(name, region=region)
        self._batcher: Batcher[LoggedEvent, None] = Batcher(
            self._send_many,
            key=lambda logged: logged.event.subject,
            parallel=_PARALLEL_CALLS,
            max_size=_BATCH,
        )

    async def send(self, logged: LoggedEvent) -> None:
        await self._batcher.submit(logged)

    async def give_up(self, reason: str) -> bool:
        """Sinks from the environment are never given up: they are retried until they work."""
        logger.error("a sink still fails: %s", reason, extra={"sink": self.name})
        return False

    async def close(self) -> None:
        await self._client.close()

    async def _send_many(self, events: Sequence[LoggedEvent]) -> Sequence[Exception | None]:
        entries = [{"Id": str(i), **self._entry(each)} for i, each in enumerate(events)]
        try:
            answer = await self._client.call(lambda client: self._send_entries(client, entries))
        except SinkError as error:
            if len(events) == 1 or _TOO_LONG not in error.message:
                raise
            return [result for each in events for result in await self._send_many([each])]
        failed = {
            each["Id"]: each.get("Message", each["Code"]) for each in answer.get("Failed", [])
        }
        return [SinkError(failed[str(i)]) if str(i) in failed else None for i in range(len(events))]

    def _send_entries(self, client: Any, entries: Sequence[Mapping[str, Any]]) -> Any:
        batch = {self._service.address: self._address, self._service.entries: entries}
        return getattr(client, self._service.call)(**batch)

    def _entry(self, logged: LoggedEvent) -> Mapping[str, Any]:
        """Its attributes are for subscription filters. In a FIFO queue or topic the group id is the
        subject, and the deduplication id is the event's id."""
        event = logged.event
        values = {"kind": event.kind, "part": logged.part, "subject": event.subject}
        attributes = {
            name: {"DataType": "String", "StringValue": each} for name, each in values.items()
        }
        entry = {self._service.body: message_of(logged), "MessageAttributes": attributes}
        if self._address.endswith(".fifo"):
            entry |= {"MessageGroupId": event.subject, "MessageDeduplicationId": logged.event_id}
        return entry


def message_of(logged: LoggedEvent) -> str:
    return EventAnswer.of(logged).model_dump_json()


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


class S3Stream(SinkStream[S3Sink]):
    """Delivers one part's log to S3, as JSON lines: one object per hour, ordered by event id.

    An hour is written completely, once it is settled, under a name derived from it; writing it
    twice gives the same object.
    """

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
            wait = self.policy.retry.delay(failures, 1) if failures else _POLL_SEC
            await asyncio.sleep(wait)

    async def drain(self) -> None:
        """Write the settled hours. Raises SinkError."""
        state = await self._begin()
        settled_ms = self._now_ms() - 2 * SETTLED_MS
        hour_ms = int(state.position or 0)
        while hour_ms + HOUR_MS <= settled_ms:
            try:
                self.delivered += await self._write(hour_ms)
            except SinkError as error:
                self.policy.on_sent(self.sink.name, "failed")
                await self._failed(state, error)
                raise
            hour_ms += HOUR_MS
            state = replace(state, position=str(hour_ms), failing_since_ms=None, last_error=None)
            await self.store.save_stream(state)

    async def _begin(self) -> StreamState:
        """Starts with the hour in which the sink was first seen."""
        state = await self.store.find_stream(self.sink.name, self.log.part)
        if state is None:
            now_ms = self._now_ms()
            first = str(now_ms // HOUR_MS * HOUR_MS)
            state = StreamState(self.sink.name, self.log.part, now_ms, first)
            await self.store.save_stream(state)
        return state

    async def _write(self, hour_ms: int) -> int:
        """Write an object with the hour's events, if there are any; returns how many."""
        written = 0
        with tempfile.TemporaryFile() as file:
            async for events in self.log.between(from_ms=hour_ms, to_ms=hour_ms + HOUR_MS):
                lines = [
                    message_of(each) + "\n"
                    for each in events
                    if wants(self.sink.kinds, each.event.kind)
                ]
                file.write("".join(lines).encode())
                written += len(lines)
            if written:
                file.seek(0)
                await self.sink.put(self.sink.key(self.log.part, hour_ms), file)
                self.policy.on_sent(self.sink.name, "delivered")
        return written

    async def _failed(self, state: StreamState, error: SinkError) -> None:
        if state.failing_since_ms is None:
            failing = replace(state, failing_since_ms=self._now_ms(), last_error=error.message)
            await self.store.save_stream(failing)

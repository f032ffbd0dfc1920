"""SQS and SNS as sinks. The AWS client is imported where it is used, and runs in threads."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from sandyard.broker.delivery.errors import SinkError
from sandyard.kit.changes.events import LoggedEvent
from sandyard.kit.concurrency.batching import Batcher
from sandyard.kit.http.events import EventAnswer

logger = logging.getLogger(__name__)

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


class AwsSink:
    """A queue or topic. The events of a batch have different subjects, so that one which AWS
    refuses is not overtaken by a later one of its subject."""

    parallel = _BATCH * _PARALLEL_CALLS
    since_ms: int | None = None

    def __init__(
        self,
        name: str,
        client: AwsClient,
        *,
        kinds: Sequence[str],
        send: Callable[[Any, Sequence[Mapping[str, Any]]], Any],
        entry: Callable[[LoggedEvent], Mapping[str, Any]],
    ) -> None:
        self.name = name
        self.kinds = kinds
        self._client = client
        self._send_entries = send
        self._entry = entry
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


def sqs_sink(queue_url: str, *, kinds: Sequence[str], region: str) -> AwsSink:
    """On a FIFO queue the group id is the subject, and the deduplication id is the event's id."""

    def send(client: Any, entries: Sequence[Mapping[str, Any]]) -> Any:
        return client.send_message_batch(QueueUrl=queue_url, Entries=entries)

    entry = partial(_entry, body="MessageBody", is_fifo=queue_url.endswith(".fifo"))
    return AwsSink("sqs", AwsClient("sqs", region=region), kinds=kinds, send=send, entry=entry)


def sns_sink(topic_arn: str, *, kinds: Sequence[str], region: str) -> AwsSink:
    def send(client: Any, entries: Sequence[Mapping[str, Any]]) -> Any:
        return client.publish_batch(TopicArn=topic_arn, PublishBatchRequestEntries=entries)

    entry = partial(_entry, body="Message", is_fifo=topic_arn.endswith(".fifo"))
    return AwsSink("sns", AwsClient("sns", region=region), kinds=kinds, send=send, entry=entry)


def message_of(logged: LoggedEvent) -> str:
    """The event as in the API."""
    return EventAnswer.of(logged).model_dump_json()


def _entry(logged: LoggedEvent, *, body: str, is_fifo: bool) -> Mapping[str, Any]:
    """The event as an entry of a batch; its attributes are for subscription filters."""
    event = logged.event
    values = {"kind": event.kind, "part": logged.part, "subject": event.subject}
    attributes = {
        name: {"DataType": "String", "StringValue": each} for name, each in values.items()
    }
    entry = {body: message_of(logged), "MessageAttributes": attributes}
    if is_fifo:
        entry |= {"MessageGroupId": event.subject, "MessageDeduplicationId": logged.event_id}
    return entry

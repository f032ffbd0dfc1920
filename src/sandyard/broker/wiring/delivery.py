"""The delivery of events, wired: from the logs of all parts to the configured sinks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from sandyard.broker.delivery.dispatcher import Dispatcher, Logs, LogStream, OpenLog, Route
from sandyard.broker.delivery.model import RetryPolicy, Webhook
from sandyard.broker.delivery.ports import DeliveryStore
from sandyard.broker.delivery.stream import Stream, StreamPolicy
from sandyard.broker.delivery.webhooks import WebhookClient, Webhooks, WebhookSink
from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.wiring import spans
from sandyard.kit.changes.events import EventLog
from sandyard.kit.clock import Clock
from sandyard.kit.jobs import JobRunner
from sandyard.kit.observability.tracing import traced
from sandyard.settings import Settings, SettingsError


@dataclass(frozen=True, slots=True)
class Delivery:
    dispatcher: Dispatcher
    webhooks: Webhooks
    client: WebhookClient
    logs: Logs

    async def close(self) -> None:
        await self.dispatcher.stop()
        await self.client.close()
        await self.logs.close()


@dataclass(frozen=True, slots=True)
class _Wiring:
    """Dependencies shared by the streams to all sinks."""

    store: DeliveryStore
    clock: Clock
    policy: StreamPolicy

    def route(
        self, sink: Any, *, version: int = 0, kind: Callable[..., LogStream] = Stream
    ) -> Route:
        """With a stream of this kind to the sink from each log."""
        sink = traced(sink, spans.SINK)

        def stream(log: EventLog) -> LogStream:
            return kind(sink, log, self.store, clock=self.clock, policy=self.policy)

        return Route(sink.name, version, stream, sink.close)


def build_delivery(
    settings: Settings,
    *,
    pool: PoolStore,
    store: DeliveryStore,
    runner: JobRunner,
    other_logs: Mapping[str, OpenLog],
    clock: Clock,
    metrics: BrokerMetrics,
) -> Delivery:
    """Raises SettingsError if a sink's address or the AWS client is missing."""
    wanted = settings.delivery
    client = WebhookClient(
        timeout_sec=wanted.webhook_timeout_sec, allowed=wanted.allowed_networks, clock=clock
    )
    logs = Logs(pool.events, other_logs)
    webhooks = Webhooks(
        pool,
        store,
        clock=clock,
        find_event=logs.find,
        post=client.post,
        require_public=client.require_public,
        is_on="webhooks" in wanted.sinks,
    )
    retry = RetryPolicy(
        first_sec=wanted.event_retry_base_sec,
        longest_sec=wanted.event_retry_max_sec,
        give_up_sec=wanted.event_retry_hours * 3600,
    )
    wiring = _Wiring(store, clock, StreamPolicy(retry, on_sent=metrics.count_delivery))

    def webhook_route(webhook: Webhook) -> Route:
        sink = WebhookSink(webhook, client, log=store.log_attempts, disable=webhooks.disable)
        return wiring.route(sink, version=webhook.sequence)

    dispatcher = Dispatcher(
        store,
        logs,
        runner,
        clock=clock,
        fixed=[_fixed_sink(name, settings, wiring) for name in wanted.sinks if name != "webhooks"],
        webhook_route=webhook_route if "webhooks" in wanted.sinks else None,
    )
    return Delivery(dispatcher, webhooks, client, logs)


def _fixed_sink(name: str, settings: Settings, wiring: _Wiring) -> Callable[[], Route]:
    """Makes the route to a sink of the settings; the AWS client is imported when it is made."""
    wanted = settings.delivery
    address, variable, kinds = {
        "sqs": (wanted.event_sqs_queue_url, "EVENT_SQS_QUEUE_URL", wanted.event_sqs_kinds),
        "sns": (wanted.event_sns_topic_arn, "EVENT_SNS_TOPIC_ARN", wanted.event_sns_kinds),
        "s3": (wanted.event_s3_url, "EVENT_S3_URL", wanted.event_s3_kinds),
    }[name]
    if address is None:
        raise SettingsError(f"{variable}: must be set for the sink {name}")
    if find_spec("boto3") is None:
        raise SettingsError(f"EVENT_SINKS: {name} needs `pip install sandyard[aws]`")
    options: dict[str, Any] = {
        "kinds": [] if kinds is None else kinds.split(","),
        "region": settings.dynamo.aws_region,
    }

    def route() -> Route:
        from sandyard.broker.delivery.aws_sinks import AwsSink, S3Sink, S3Stream

        if name == "s3":
            return wiring.route(S3Sink(address, **options), kind=S3Stream)
        return wiring.route(AwsSink(name, address, **options))

    return route

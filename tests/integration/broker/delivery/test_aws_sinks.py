"""SQS, SNS and S3 as sinks, against AWS as `moto` has it."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from sandyard.broker.delivery.aws_sinks import (
    HOUR_MS,
    AwsSink,
    S3Sink,
    S3Stream,
)
from sandyard.broker.delivery.errors import SinkError
from sandyard.broker.delivery.model import RetryPolicy
from sandyard.broker.delivery.stream import Stream, StreamPolicy
from sandyard.tools.provider.simulator import Simulator
from tests.support.broker.event_receivers import Bench, delivery_bench, until, written
from tests.support.broker.in_process import TOKENS, broker_api
from tests.support.broker.pools import discoveries, quarantined, restored
from tests.support.storage.engines import AWS_ENVIRONMENT

REGION = "us-east-1"
POLICY = StreamPolicy(RetryPolicy(first_sec=0.01, longest_sec=0.02), poll_sec=0.05)


@pytest.fixture(scope="module")
def aws_url() -> Iterator[str]:
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(autouse=True)
def aws(aws_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**AWS_ENVIRONMENT, "AWS_ENDPOINT_URL": aws_url}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def bench(tmp_path: Path, postgres_url: str, dynamo_url: str) -> AsyncIterator[Bench]:
    async with delivery_bench("sqlite", tmp_path, postgres_url, dynamo_url) as bench:
        yield bench


def client(service: str) -> Any:
    made: Any = boto3.Session()
    return made.client(service, region_name=REGION)


def make_queue(name: str) -> str:
    attributes = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    url: str = client("sqs").create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return url


def received(queue_url: str) -> list[dict[str, Any]]:
    """All messages of a queue, each deleted once it was read."""
    sqs = client("sqs")
    found: list[dict[str, Any]] = []
    while True:
        batch = sqs.receive_message(
            QueueUrl=queue_url, MaxNumberOfMessages=10, AttributeNames=["All"]
        ).get("Messages", [])
        if not batch:
            return found
        found += batch
        for each in batch:
            sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=each["ReceiptHandle"])


async def make_changes(bench: Bench) -> None:
    now = int(bench.clock.now())
    added = discoveries(12, now=now)
    await bench.pool.apply(added)
    away = [quarantined(each.result, now) for each in added]
    await bench.pool.apply(away)
    await bench.pool.apply([restored(each.result, now) for each in away])


def stream(bench: Bench, sink: AwsSink) -> Stream:
    return Stream(sink, bench.pool.events, bench.store, clock=bench.clock, policy=POLICY)


class FlakySink(AwsSink):
    """Lets every other call fail, before or after AWS has done it."""

    calls = 0

    def _send_entries(self, client: Any, entries: Any) -> Any:
        self.calls += 1
        if self.calls % 4 == 0:
            raise OSError("no connection")
        answer = super()._send_entries(client, entries)
        if self.calls % 4 == 2:
            raise OSError("the answer was lost")
        return answer


async def test_a_fifo_queue_has_each_subject_in_order_and_each_event_once(bench: Bench) -> None:
    url = make_queue("events.fifo")
    sink = FlakySink("sqs", url, kinds=["sandbox.*"], region=REGION)
    bench_stream = stream(bench, sink)
    following = asyncio.create_task(bench_stream.follow())
    await until(lambda: following.done() or bench_stream._state.since_ms)
    await make_changes(bench)
    await until(lambda: bench_stream.delivered == 36)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await sink.close()
    assert sink.calls > 4
    messages = received(url)
    came: dict[str, list[str]] = defaultdict(list)
    for each in messages:
        body = json.loads(each["Body"])
        assert each["Attributes"]["MessageGroupId"] == body["subject"]
        assert each["Attributes"]["MessageDeduplicationId"] == body["event_id"]
        came[body["subject"]].append(body["event_id"])
    assert came == written(await bench.logged())


async def test_a_queue_that_is_not_there_fails_and_says_so(bench: Bench) -> None:
    sink = AwsSink("sqs", f"{make_queue('gone')}-not", kinds=[], region=REGION)
    draining = stream(bench, sink)
    await draining.drain()
    await make_changes(bench)
    with pytest.raises(SinkError, match="sqs"):
        await draining.drain()
    state = await bench.store.find_stream("sqs", "broker")
    assert state is not None
    assert state.failing_since_ms is not None
    assert not await sink.give_up("it is never given up")
    await sink.close()


async def test_a_topic_hands_the_events_of_its_kinds_on(bench: Bench) -> None:
    arn, queue = subscribed_topic("events")
    sink = AwsSink("sns", arn, kinds=["sandbox.quarantined"], region=REGION)
    draining = stream(bench, sink)
    await draining.drain()
    await make_changes(bench)
    await draining.drain()
    await sink.close()
    events = [json.loads(json.loads(each["Body"])["Message"]) for each in received(queue)]
    assert {each["kind"] for each in events} == {"sandbox.quarantined"}
    assert len({each["event_id"] for each in events}) == 12


async def test_s3_has_an_object_for_each_hour_the_same_if_written_again(bench: Bench) -> None:
    s3 = client("s3")
    s3.create_bucket(Bucket="audit-hours")
    sink = S3Sink("s3://audit-hours/sandyard", kinds=[], region=REGION)
    export = S3Stream(sink, bench.pool.events, bench.store, clock=bench.clock, policy=POLICY)
    await export.drain()
    state = await bench.store.find_stream("s3", "broker")
    assert state is not None
    assert not s3.list_objects_v2(Bucket="audit-hours").get("Contents")
    await make_changes(bench)
    logged = await bench.logged()
    bench.clock.advance(2 * 3600)
    await export.drain()
    assert export.delivered == len(logged)
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket="audit-hours")["Contents"]]
    hours = {int(each.event_id[:12], 16) // HOUR_MS * HOUR_MS for each in logged}
    assert keys == sorted(sink.key("broker", hour) for hour in hours)
    assert all(key.startswith("sandyard/broker/20") for key in keys)
    bodies = {key: s3.get_object(Bucket="audit-hours", Key=key)["Body"].read() for key in keys}
    lines = [json.loads(line) for body in bodies.values() for line in body.splitlines()]
    assert [each["event_id"] for each in lines] == sorted(each.event_id for each in logged)
    await bench.store.save_stream(replace(state, position=state.position))  # a crash before it
    await export.drain()
    again = {key: s3.get_object(Bucket="audit-hours", Key=key)["Body"].read() for key in keys}
    assert again == bodies
    await sink.close()


async def test_a_bucket_that_is_not_there_keeps_the_hour(bench: Bench) -> None:
    sink = S3Sink("s3://missing-bucket", kinds=[], region=REGION)
    export = S3Stream(sink, bench.pool.events, bench.store, clock=bench.clock, policy=POLICY)
    await export.drain()
    await make_changes(bench)
    bench.clock.advance(2 * 3600)
    with pytest.raises(SinkError):
        await export.drain()
    state = await bench.store.find_stream("s3", "broker")
    assert state is not None
    assert state.last_error is not None
    client("s3").create_bucket(Bucket="missing-bucket")
    await export.drain()
    assert export.delivered == 36
    await sink.close()


def subscribed_topic(name: str) -> tuple[str, str]:
    """A topic, and a queue that gets its messages."""
    queue = make_queue(f"{name}-subscriber")
    arn: str = client("sns").create_topic(Name=name)["TopicArn"]
    client("sns").subscribe(
        TopicArn=arn,
        Protocol="sqs",
        Endpoint=f"arn:aws:sqs:{REGION}:123456789012:{name}-subscriber",
    )
    return arn, queue


async def test_each_sink_has_the_kinds_of_its_setting(
    tmp_path: Path,
    simulator: Simulator,
    simulator_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, subscriber = subscribed_topic("kinds")
    queue = make_queue("kinds")
    client("s3").create_bucket(Bucket="kinds")
    for name, value in {
        "CSP_BASE_URL": simulator_url,
        "EVENT_SINKS": "sqs,sns,s3",
        "EVENT_SQS_QUEUE_URL": queue,
        "EVENT_SQS_KINDS": "lease.*",
        "EVENT_SNS_TOPIC_ARN": topic,
        "EVENT_SNS_KINDS": "sandbox.discovered",
        "EVENT_S3_URL": "s3://kinds",
        "EVENT_S3_KINDS": "pool.empty",
        **TOKENS,
    }.items():
        monkeypatch.setenv(name, value)
    async with broker_api(tmp_path, simulator_url) as api:
        await api.run("deliver")
        simulator.create(1)
        await api.run("sync")
        assert (await api.allocate("ann")).status_code == 201
        await api.run("pool")
        api.clock.advance(2 * 3600)
        await api.run("deliver")
    by_sqs = {json.loads(each["Body"])["kind"] for each in received(queue)}
    by_sns = [json.loads(json.loads(each["Body"])["Message"]) for each in received(subscriber)]
    assert by_sqs == {"lease.created"}
    assert {each["kind"] for each in by_sns} == {"sandbox.discovered"}
    assert {each["kind"] for each in in_bucket("kinds")} == {"pool.empty"}


def in_bucket(name: str) -> list[dict[str, Any]]:
    s3 = client("s3")
    bodies = [
        s3.get_object(Bucket=name, Key=each["Key"])["Body"].read()
        for each in s3.list_objects_v2(Bucket=name).get("Contents", [])
    ]
    return [json.loads(line) for body in bodies for line in body.splitlines()]

"""The fault proxy does to a real client what it says, and counts what it sees."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from sandyard.broker.stores.dynamo_table import PoolTable, definition
from sandyard.kit.free_ports import free_port
from tests.faults.proxy import FaultProxy, Faults, fault_proxy
from tests.support.storage.engines import pool_table

HEADERS = {
    "Content-Type": "application/x-amz-json-1.0",
    "Authorization": "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, "
    "SignedHeaders=host, Signature=none",
    "X-Amz-Date": "20260101T000000Z",
}


class Client:
    """The least that speaks DynamoDB: no retries, no opinions."""

    def __init__(self, url: str, table: str) -> None:
        self._http = httpx.AsyncClient(base_url=url, timeout=60)
        self._table = table

    async def call(self, action: str, **payload: Any) -> httpx.Response:
        headers = HEADERS | {"X-Amz-Target": f"DynamoDB_20120810.{action}"}
        return await self._http.post("/", headers=headers, json=payload)

    async def on_table(self, action: str, **payload: Any) -> dict[str, Any]:
        answer = await self.call(action, TableName=self._table, **payload)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def put(self, name: str, status: str, *, at: int = 0) -> None:
        item = {"status": {"S": status}, "allocated_at": {"N": str(at)}, "name": {"S": name}}
        await self.on_table("PutItem", Item=_key(name) | item)

    async def get(self, name: str) -> dict[str, Any] | None:
        answer = await self.on_table("GetItem", Key=_key(name), ConsistentRead=True)
        return answer.get("Item")

    async def listed(self, status: str, **more: Any) -> list[str]:
        answer = await self.query(status, **more)
        return [item["name"]["S"] for item in answer["Items"]]

    async def query(
        self, status: str, *, condition: str = "#status = :status", values: Any = None, **more: Any
    ) -> dict[str, Any]:
        return await self.on_table(
            "Query",
            IndexName="StatusIndex",
            KeyConditionExpression=condition,
            ExpressionAttributeNames={"#status": "status"} | more.pop("names", {}),
            ExpressionAttributeValues={":status": {"S": status}} | (values or {}),
            **more,
        )

    async def close(self) -> None:
        await self._http.aclose()


def _key(name: str) -> dict[str, Any]:
    return {"PK": {"S": f"SBX#{name}"}, "SK": {"S": "META"}}


@pytest.fixture
async def client(proxy: FaultProxy, pool: PoolTable) -> AsyncIterator[Client]:
    client = Client(proxy.url, pool.names.table)
    yield client
    await client.close()


class TestFaults:
    async def test_without_faults_everything_passes(self, client: Client) -> None:
        await client.put("a", "available")
        assert await client.listed("available") == ["a"]

    async def test_a_dropped_answer_was_carried_out(
        self, client: Client, proxy: FaultProxy
    ) -> None:
        proxy.set(drop=1, times=1)
        with pytest.raises(httpx.TransportError):
            await client.put("a", "available")
        assert await client.get("a") is not None
        assert proxy.total.injected == {"drop": 1}

    async def test_a_reset_call_was_not_carried_out(
        self, client: Client, proxy: FaultProxy
    ) -> None:
        proxy.set(reset=1, times=1)
        with pytest.raises(httpx.TransportError):
            await client.put("a", "available")
        assert await client.get("a") is None
        assert proxy.total.forwarded["PutItem"] == 0

    async def test_throttling_comes_by_both_of_its_names(
        self, client: Client, proxy: FaultProxy
    ) -> None:
        proxy.set(throttle=1)
        answers = [await client.call("GetItem") for _ in range(20)]
        assert {answer.status_code for answer in answers} == {400}
        kinds = {answer.json()["__type"].split("#")[1] for answer in answers}
        assert kinds == {"ThrottlingException", "ProvisionedThroughputExceededException"}
        assert not proxy.total.forwarded

    async def test_errors_are_500(self, client: Client, proxy: FaultProxy) -> None:
        proxy.set(error=1)
        answer = await client.call("GetItem")
        assert answer.status_code == 500
        assert answer.json()["__type"].endswith("#InternalServerError")

    async def test_only_transactions_are_cancelled(
        self, client: Client, proxy: FaultProxy, pool: PoolTable
    ) -> None:
        proxy.set(cancel=1)
        await client.put("a", "available")
        delete = {"Delete": {"TableName": pool.names.table, "Key": _key("a")}}
        check = {
            "ConditionCheck": {
                "TableName": pool.names.table,
                "Key": _key("b"),
                "ConditionExpression": "attribute_not_exists(PK)",
            }
        }
        answer = await client.call("TransactWriteItems", TransactItems=[delete, check])
        assert answer.status_code == 400
        content = answer.json()
        assert content["__type"].endswith("#TransactionCanceledException")
        codes = [reason["Code"] for reason in content["CancellationReasons"]]
        assert codes == ["TransactionConflict", "None"]
        assert await client.get("a") is not None

    async def test_a_delayed_call_takes_its_time(self, client: Client, proxy: FaultProxy) -> None:
        proxy.set(delay=1, delay_sec=0.3)
        started = time.monotonic()
        await client.put("a", "available")
        assert time.monotonic() - started >= 0.3

    async def test_only_the_named_actions_are_hit(self, client: Client, proxy: FaultProxy) -> None:
        proxy.set(error=1, only=["GetItem"])
        await client.put("a", "available")
        assert (await client.call("GetItem")).status_code == 500

    async def test_the_same_seed_gives_the_same_faults(
        self, dynamo_url: str, pool: PoolTable
    ) -> None:
        async def fates(seed: int) -> list[int]:
            faults = Faults(error=0.5)
            async with fault_proxy(dynamo_url, seed=seed, faults=faults) as proxy:
                client = Client(proxy.url, pool.names.table)
                answers = [
                    await client.call("DescribeTable", TableName=pool.names.table)
                    for _ in range(30)
                ]
                await client.close()
                return [answer.status_code for answer in answers]

        first = await fates(1)
        assert set(first) == {200, 500}
        assert await fates(1) == first
        assert await fates(2) != first


LONG_SEC, SHORT_SEC = 600, 0.1
"""A lag that no test outlasts, and one that is soon over."""


async def until_listed(client: "Client", status: str, names: list[str]) -> None:
    async with asyncio.timeout(30):
        while await client.listed(status) != names:
            await asyncio.sleep(0.02)


class TestIndexLag:
    async def test_a_new_item_shows_up_late(self, client: Client, proxy: FaultProxy) -> None:
        proxy.set(index_lag_sec=LONG_SEC)
        await client.put("a", "available")
        assert await client.listed("available") == []
        assert await client.get("a") is not None
        proxy.set(index_lag_sec=SHORT_SEC)
        await until_listed(client, "available", ["a"])

    async def test_a_changed_item_is_shown_as_it_was(
        self, client: Client, proxy: FaultProxy
    ) -> None:
        await client.put("a", "available")
        proxy.set(index_lag_sec=LONG_SEC)
        await client.put("a", "stale", at=1)
        await client.put("a", "allocated", at=2)
        assert await client.listed("available") == ["a"]
        assert await client.listed("allocated") == []
        proxy.set(index_lag_sec=SHORT_SEC)
        await until_listed(client, "allocated", ["a"])
        assert await client.listed("available") == []

    async def test_a_deleted_item_is_still_there_for_a_while(
        self, client: Client, proxy: FaultProxy, pool: PoolTable
    ) -> None:
        await client.put("a", "available")
        proxy.set(index_lag_sec=LONG_SEC)
        delete = {"Delete": {"TableName": pool.names.table, "Key": _key("a")}}
        assert (await client.call("TransactWriteItems", TransactItems=[delete])).status_code == 200
        assert await client.listed("available") == ["a"]
        proxy.set(index_lag_sec=SHORT_SEC)
        await until_listed(client, "available", [])

    async def test_a_refused_write_leaves_no_trace(
        self, client: Client, proxy: FaultProxy, pool: PoolTable
    ) -> None:
        await client.put("a", "available")
        proxy.set(index_lag_sec=LONG_SEC)
        answer = await client.call(
            "DeleteItem",
            TableName=pool.names.table,
            Key=_key("a"),
            ConditionExpression="attribute_not_exists(PK)",
        )
        assert answer.status_code == 400
        assert await client.listed("available") == ["a"]

    async def test_pages_filters_and_counts_are_as_of_then(
        self, client: Client, proxy: FaultProxy
    ) -> None:
        names = [f"lab-{n}" for n in range(5)] + [f"other-{n}" for n in range(3)]
        for name in names:
            await client.put(name, "available")
        proxy.set(index_lag_sec=60)
        for name in names[::2]:
            await client.put(name, "allocated", at=5)
        seen: list[str] = []
        start: dict[str, Any] = {}
        while True:
            answer = await client.query("available", Limit=3, **start)
            seen += [item["name"]["S"] for item in answer["Items"]]
            if "LastEvaluatedKey" not in answer:
                break
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        assert seen == names
        assert (await client.query("available", Select="COUNT"))["Count"] == 8
        assert "Items" not in await client.query("available", Select="COUNT")
        prefixed = await client.listed(
            "available",
            values={":prefix": {"S": "lab"}},
            names={"#name": "name"},
            FilterExpression="begins_with(#name, :prefix)",
        )
        assert prefixed == names[:5]

    async def test_the_range_of_a_key_condition_is_as_of_then(
        self, client: Client, proxy: FaultProxy
    ) -> None:
        for number in range(4):
            await client.put(f"a{number}", "allocated", at=number)
        proxy.set(index_lag_sec=60)
        await client.put("a0", "allocated", at=9)
        await client.put("a3", "allocated", at=1)
        by = {
            "condition": "#status = :status AND allocated_at <= :by",
            "values": {":by": {"N": "1"}},
        }
        assert await client.listed("allocated", **by) == ["a0", "a1"]

    async def test_many_writers_at_once_never_spoil_the_past(
        self, client: Client, proxy: FaultProxy
    ) -> None:
        await client.put("a", "available")
        proxy.set(index_lag_sec=60)
        await asyncio.gather(*(client.put("a", "allocated", at=n) for n in range(30)))
        assert await client.listed("available") == ["a"]
        assert await client.listed("allocated") == []


class TestControl:
    async def test_counts_calls_by_action_in_total_and_since_a_reset(
        self, client: Client, proxy: FaultProxy
    ) -> None:
        async with httpx.AsyncClient(base_url=proxy.url) as control:
            await asyncio.gather(*(client.put(f"a{n}", "available") for n in range(40)))
            assert (await control.post("/_faults/reset-counts")).status_code == 200
            await client.listed("available")
            counts = (await control.get("/_faults")).json()
        assert counts["total"]["arrived"] == {"PutItem": 40, "Query": 1}
        assert counts["total"]["forwarded"] == {"PutItem": 40, "Query": 1}
        assert counts["since_reset"]["arrived"] == {"Query": 1}

    async def test_faults_change_while_it_runs(self, client: Client, proxy: FaultProxy) -> None:
        async with httpx.AsyncClient(base_url=proxy.url) as control:
            answer = await control.patch("/_faults", json={"error": 1.0, "times": 2})
            assert answer.json()["faults"]["error"] == 1.0
            statuses = [(await client.call("ListTables")).status_code for _ in range(3)]
        assert statuses == [500, 500, 200]

    @pytest.mark.parametrize("setting", [{"drop": 2}, {"drop": "x"}, {"flood": 1}])
    async def test_nonsense_is_refused(self, proxy: FaultProxy, setting: dict[str, Any]) -> None:
        async with httpx.AsyncClient(base_url=proxy.url) as control:
            assert (await control.patch("/_faults", json=setting)).status_code == 400
            assert (await control.get("/elsewhere/_faults")).status_code != 200
        assert proxy.faults == Faults()


async def test_runs_as_a_process_of_its_own(dynamo_url: str) -> None:
    port = free_port()
    arguments = ["--port", str(port), "--engine", dynamo_url, "--seed", "3"]
    process = subprocess.Popen([sys.executable, "-m", "tests.faults.proxy", *arguments])
    try:
        url = f"http://127.0.0.1:{port}"
        await _until_answers(url)
        name = f"Pool-{uuid4().hex[:12]}"
        async with pool_table(url, name=name) as pool:
            await pool.check()
            wanted = definition(pool.names)["KeySchema"]
            described = await pool.table.engine.call("DescribeTable", {"TableName": name})
            assert described["Table"]["KeySchema"] == wanted
    finally:
        process.terminate()
        assert process.wait(60) == 0


async def _until_answers(url: str) -> None:
    deadline = time.monotonic() + 20
    async with httpx.AsyncClient() as client:
        while True:
            try:
                await client.get(f"{url}/_faults")
            except httpx.TransportError:
                assert time.monotonic() < deadline, "the proxy did not start"
                await asyncio.sleep(0.05)
            else:
                return

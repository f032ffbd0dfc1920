"""Every call of accounts that makes something, repeated with one key: one effect and one answer."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from sandyard.kit import idempotency
from sandyard.kit.errors import UnavailableError
from sandyard.kit.idempotency import Record
from sandyard.platform.access.guard import RequestRate
from tests.fakes.runtime import FakeRuntime
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import Caller, MigratedEngines, PlatformApi, platform_api
from tests.support.platform.repeated_calls import RepeatedCall, platform_calls, sandbox_calls
from tests.support.platform.sandboxes import act, add_sandbox, add_template
from tests.support.storage.engines import SQL_ENGINES

DAY = 24 * 3600
OPERATIONS = {
    *(each.operation for each in platform_calls("")),
    *(each.operation for each in sandbox_calls("")),
}


@dataclass(frozen=True, slots=True)
class Server:
    replicas: Sequence[PlatformApi]
    url: str | None
    data_dir: Path
    clock: ManualClock

    @property
    def api(self) -> PlatformApi:
        return self.replicas[0]

    async def call_of(self, operation: str, caller: Caller) -> RepeatedCall:
        if operation in {each.operation for each in platform_calls("")}:
            calls = platform_calls(await add_template(self.api))
        else:
            sandbox = await add_sandbox(self.api, caller)
            calls = sandbox_calls((await act(self.api, caller, sandbox, "start"))["sandbox_id"])
        return next(each for each in calls if each.operation == operation)


@pytest.fixture(params=SQL_ENGINES)
async def server(
    request: pytest.FixtureRequest, migrated: MigratedEngines, tmp_path: Path
) -> AsyncIterator[Server]:
    """Two replicas on PostgreSQL; a SQLite file has one process."""
    url = await migrated.copy(request.param, tmp_path)
    runtime, clock = FakeRuntime(tmp_path / "machines"), ManualClock(time.time())
    async with AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(platform_api(url, tmp_path, clock, runtime=runtime))
            for _ in range(1 if url is None else 2)
        ]
        yield Server(replicas, url, tmp_path, clock)
        await runtime.end_all()


@pytest.fixture
async def ann(server: Server) -> Caller:
    return await server.api.admin()


def code_of(answer: httpx.Response) -> tuple[int, str]:
    """In the API's shape; E2B's has the status as its code, and the message."""
    body = answer.json()
    error = body.get("error", body)
    return answer.status_code, str(error["code"])


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
async def test_repeated_it_has_one_effect_and_one_answer(
    server: Server, ann: Caller, operation: str
) -> None:
    call = await server.call_of(operation, ann)
    before = await call.count(server.api, ann)
    answers = await asyncio.gather(
        *(call.send(each, ann, "one") for each in server.replicas for _ in range(5))
    )
    assert {each.status_code for each in answers} <= {201, 202}, answers[0].text
    assert {each.content for each in answers} == {answers[0].content}
    assert await call.count(server.api, ann) == before + 1
    again = await call.send(server.api, ann, "one")
    assert (again.content, again.headers["Idempotency-Replayed"]) == (answers[0].content, "true")
    other = await call.send(server.api, ann, "one", call.another)
    assert other.status_code == 409
    assert "Idempotency-Key" in other.text
    bob = await server.api.admin()
    if "sbx-" not in call.path:  # else it is not bob's
        theirs = await call.send(server.api, bob, "one", call.another)
        assert theirs.is_success, theirs.text
        assert theirs.content != answers[0].content
    mine = await call.count(server.api, ann)
    second = await call.send(server.api, ann, "two", call.another)
    assert second.is_success, second.text
    assert await call.count(server.api, ann) > mine


class Forgetful:
    """Loses each answer that is to be recorded, as a server does that dies just before."""

    def __init__(self, records: idempotency.RecordStore) -> None:
        self.add, self.find, self.prune = records.add, records.find, records.prune
        self._records = records

    async def replace(self, before: Record, after: Record | None) -> bool:
        if after is not None and after.status is not None:
            raise UnavailableError
        return await self._records.replace(before, after)


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
async def test_a_repeat_finds_what_was_made_before_its_answer_was_lost(
    server: Server, ann: Caller, operation: str
) -> None:
    call = await server.call_of(operation, ann)
    before = await call.count(server.api, ann)
    calls = server.api.part.guard.idempotency
    records = calls.records
    object.__setattr__(calls, "records", Forgetful(records))
    lost = await call.send(server.api, ann, "one")
    assert lost.is_success, lost.text
    object.__setattr__(calls, "records", records)
    server.clock.advance(idempotency.HELD_SEC)
    found = await call.send(server.api, ann, "one")
    assert await call.count(server.api, ann) == before + 1
    if call.finds_made:
        assert (found.status_code, ids_in(found)) == (lost.status_code, ids_in(lost))
    else:
        assert code_of(found) == (409, "OUTCOME_UNKNOWN")


def ids_in(answer: httpx.Response) -> list[object]:
    """And secrets; not the times, or tokens that end with the call."""
    body = answer.json()
    [found] = body if isinstance(body, list) else [body]
    found = found.get("sandbox", found)
    names = ("project_id", "template_id", "key_id", "api_key", "sandbox_id", "image_id")
    return [found.get(each) for each in (*names, "sandboxID", "snapshotID")]


async def test_a_repeat_finds_what_a_killed_server_has_made(server: Server, ann: Caller) -> None:
    calls = [
        await server.call_of(each, ann)
        for each in ("create_project", "create_template", "create_api_key", "create_sandbox")
    ]
    before = [await each.count(server.api, ann) for each in calls]
    headers = ann.headers | {"Idempotency-Key": "one"}
    sent = [{"path": each.path, "body": each.body, "headers": headers} for each in calls]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.platform.killed_calls", server.url or "-"),
        *(str(server.data_dir), str(server.clock.now()), json.dumps(sent)),
    )
    assert await process.wait() == -signal.SIGKILL
    server.clock.advance(idempotency.HELD_SEC)
    async with platform_api(server.url, server.data_dir, server.clock) as api:
        assert [await each.count(api, ann) for each in calls] == [count + 1 for count in before]
        first = [await each.send(api, ann, "one") for each in calls]
        assert {each.status_code for each in first} == {201}
        again = [await each.send(api, ann, "one") for each in calls]
        assert [each.content for each in again] == [each.content for each in first]
        assert [await each.count(api, ann) for each in calls] == [count + 1 for count in before]
        key = first[2].json()["api_key"]
        mine = await api.client.get("/api/v1/me", headers={"X-API-Key": key})
        assert mine.json()["account_id"] == ann.account_id


async def test_a_repeated_invitation_sends_one_mail(server: Server, ann: Caller) -> None:
    before = len(await server.api.mails())
    for _ in range(2):
        invited = await server.api.call(
            "POST",
            "/admin/invitations",
            ann,
            json={"email": "bob@example.com"},
            headers={"Idempotency-Key": "one"},
        )
        assert invited.status_code == 202, invited.text
    assert len(await server.api.mails()) == before + 1


async def test_a_refused_call_leaves_its_key_free(server: Server, ann: Caller) -> None:
    [call] = [each for each in platform_calls("") if each.operation == "create_project"]
    refused = await call.send(server.api, ann, "one", {"name": ""})
    assert refused.status_code == 400
    assert (await call.send(server.api, ann, "one")).status_code == 201
    taken = await call.send(server.api, ann, "two")
    assert code_of(taken) == (409, "PROJECT_NAME_TAKEN")
    assert (await call.send(server.api, ann, "two", call.another)).status_code == 201


async def test_long_answers_are_stored_up_to_a_limit(server: Server, ann: Caller) -> None:
    calls = server.api.part.guard.idempotency
    object.__setattr__(calls, "stored", RequestRate("64 per day", "async+memory://"))
    call = await server.call_of("run_command", ann)
    long = {"command": "head -c 40000 /dev/zero | tr '\\0' x"}
    longer = {"command": "head -c 300000 /dev/zero"}  # each is six characters of JSON
    sent = {"longer": longer, "one": long, "two": long, "three": {"command": "true"}}
    first = {key: await call.send(server.api, ann, key, body) for key, body in sent.items()}
    assert {each.status_code for each in first.values()} == {201}
    again = {key: await call.send(server.api, ann, key, body) for key, body in sent.items()}
    assert again["one"].content == first["one"].content
    assert again["three"].content == first["three"].content
    for each in ("two", "longer"):
        assert code_of(again[each]) == (409, "ANSWER_NOT_STORED")
        assert again[each].json()["error"]["details"] == {"status": 201}


@pytest.mark.parametrize("key", ["", "a b", "x" * 129, "\u00e9"])
async def test_other_keys_are_refused(server: Server, ann: Caller, key: str) -> None:
    headers = ann.headers.items()
    sent = [*headers, ("Idempotency-Key", key.encode())]
    made = await server.api.client.post("/api/v1/projects", json={"name": "mine"}, headers=sent)  # type: ignore[arg-type]
    assert code_of(made) == (400, "INVALID_IDEMPOTENCY_KEY")


async def test_after_a_day_the_key_is_free_and_its_record_is_removed(
    server: Server, ann: Caller
) -> None:
    [call] = [each for each in platform_calls("") if each.operation == "create_project"]
    assert (await call.send(server.api, ann, "one")).status_code == 201
    server.clock.advance(DAY)
    records = server.api.part.guard.idempotency.records
    record_id = idempotency.record_id(ann.account_id, "create_project", "one")
    assert await records.find(record_id) is not None
    [job] = [each for each in server.api.part.schedule if each.name == "logins"]
    report = await server.api.part.runner.run(job)
    assert report.idempotency_records_removed == 1
    assert await records.find(record_id) is None


async def test_what_is_recorded_shows_no_secret(server: Server, ann: Caller) -> None:
    made = await server.api.call(
        "POST", "/api-keys", ann, json={"name": "mine"}, headers={"Idempotency-Key": "one"}
    )
    records = server.api.part.guard.idempotency.records
    record = await records.find(idempotency.record_id(ann.account_id, "create_api_key", "one"))
    assert record is not None
    assert record.status == 201
    assert made.json()["api_key"] not in record.content
    assert "mine" not in record.content

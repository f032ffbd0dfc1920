"""Access is checked while it lasts: it ends with the credential and the account behind it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from sandyard.platform.sandboxes.errors import OwnerInactiveError
from tests.integration.attacks.victims import Victim, victim_of
from tests.support.platform.in_process import PlatformApi
from tests.support.platform.sandboxes import act, look

SOON_SEC = 30
Revoke = Callable[[Victim], Awaitable[None]]
REVOCATIONS = [
    Victim.delete_key,
    Victim.log_out,
    Victim.change_password,
    Victim.be_deactivated,
]
FILE = {"path": "/workspace/file"}
SLEEP = {"process": {"cmd": "sleep", "args": ["600"], "cwd": "/workspace"}}


async def status_of(victim: Victim) -> str:
    listed = await victim.api.part.wired.store.find(victim.sandbox_id)
    assert listed is not None
    return str(listed.status)


@pytest.mark.parametrize("revoke", REVOCATIONS)
async def test_e2b_tokens_and_links_end_with_their_credential(
    victim: Victim, revoke: Revoke
) -> None:
    assert (await victim.inside("POST", "/files", params=FILE, content=b"x")).status_code == 200
    link = victim.link(FILE["path"])
    assert (await victim.api.client.get(link)).content == b"x"
    assert (await victim.inside("GET", "/health")).status_code == 204
    await revoke(victim)
    assert (await victim.inside("GET", "/files", params=FILE)).status_code == 401
    assert (await victim.inside("GET", "/health")).status_code == 401
    assert (await victim.api.client.get(link)).status_code == 401


async def test_e2b_tokens_and_links_have_an_end(victim: Victim) -> None:
    await victim.inside("POST", "/files", params=FILE, content=b"x")
    victim.api.clock.advance(14 * 86_400)
    assert (await victim.inside("GET", "/health")).status_code == 401
    assert (await victim.api.client.get(victim.link(FILE["path"]))).status_code == 401


@pytest.mark.parametrize("end", [Victim.be_stopped, Victim.be_ended_by_an_admin])
async def test_e2b_tokens_and_links_end_when_the_sandbox_is_stopped(
    victim: Victim, end: Revoke
) -> None:
    await victim.inside("POST", "/files", params=FILE, content=b"x")
    link = victim.link(FILE["path"])
    await end(victim)
    assert (await victim.inside("GET", "/health")).status_code == 401
    renewed = replace(victim, sandbox=await victim.resume())
    assert (await victim.api.client.get(link)).status_code == 401
    assert (await victim.inside("GET", "/files", params=FILE)).status_code == 401
    assert (await renewed.inside("GET", "/files", params=FILE)).content == b"x"


async def test_e2b_tokens_outlast_a_pause_for_which_the_sdks_keep_them(victim: Victim) -> None:
    await victim.inside("POST", "/files", params=FILE, content=b"x")
    await victim.pause()
    resumed = await victim.resume()
    assert resumed["envdAccessToken"] == victim.sandbox["envdAccessToken"]
    assert (await victim.inside("GET", "/files", params=FILE)).content == b"x"


async def test_e2b_tokens_of_a_killed_sandbox_open_nothing(victim: Victim) -> None:
    """Neither the sandbox, whose id never comes back, nor another one of the same account."""
    other = await victim_of(victim.api, victim.owner, victim.admin, metadata={"is": "other"})
    await victim.control("DELETE")
    statuses = []
    for sandbox_id in (victim.sandbox_id, other.sandbox_id):
        headers = {"E2b-Sandbox-Id": sandbox_id}
        statuses.append((await victim.inside("GET", "/health", headers=headers)).status_code)
    assert statuses == [502, 401]


@pytest.mark.parametrize(
    ("call", "message", "revoke"),
    [
        ("process.Process/Start", SLEEP, Victim.delete_key),
        ("process.Process/Start", SLEEP, Victim.log_out),
        ("process.Process/Start", SLEEP, Victim.be_deactivated),
        ("filesystem.Filesystem/WatchDir", {"path": "/workspace"}, Victim.delete_key),
    ],
)
async def test_e2b_streams_end_soon_after_their_credential(
    victim: Victim, call: str, message: object, revoke: Revoke
) -> None:
    async with victim.stream(call, message) as answer:
        assert answer.status_code == 200
        await revoke(victim)
        async with asyncio.timeout(SOON_SEC):
            received = b"".join([each async for each in answer.aiter_bytes()])
    assert b"unauthenticated" in received


async def test_a_connection_to_a_command_ends_soon_after_its_key(victim: Victim) -> None:
    async with victim.stream("process.Process/Start", SLEEP | {"tag": "sleep"}):
        selected = {"process": {"tag": "sleep"}}
        async with victim.stream("process.Process/Connect", selected) as answer:
            await victim.delete_key()
            async with asyncio.timeout(SOON_SEC):
                received = b"".join([each async for each in answer.aiter_bytes()])
    assert b"unauthenticated" in received


async def test_health_does_not_wake_and_reveals_no_ids(api: PlatformApi) -> None:
    resumes = {"autoPause": True, "autoResume": {"enabled": True}}
    victim = await victim_of(api, await api.account(), await api.admin(), **resumes)
    unknown = {"E2b-Sandbox-Id": "sbx-00000000000000000", "X-Access-Token": ""}
    answers = [
        await victim.inside("GET", "/health", headers={"X-Access-Token": "wrong"}),
        await victim.inside("GET", "/health", headers=unknown),
    ]
    await victim.pause()
    assert (await victim.inside("GET", "/health")).status_code == 502
    assert await status_of(victim) == "stopped"
    answers.append(await victim.inside("GET", "/health", headers={"X-Access-Token": "wrong"}))
    assert [each.status_code for each in answers] == [401] * 3
    assert len({each.content for each in answers}) == 1
    await victim.inside("POST", "/process.Process/List", json={})
    assert await status_of(victim) == "running"


@pytest.mark.parametrize("is_public", [True, False])
async def test_nothing_wakes_the_sandboxes_of_a_deactivated_account(
    api: PlatformApi, *, is_public: bool
) -> None:
    resumes = {"autoPause": True, "autoResume": {"enabled": True}}
    network = {"network": {"allowPublicTraffic": is_public}}
    victim = await victim_of(api, await api.account(), await api.admin(), **resumes, **network)
    await act(api, victim.owner, {"sandbox_id": victim.sandbox_id}, "stop")
    await victim.be_deactivated()
    host = {"Host": f"3000-{victim.sandbox_id}.localhost"}
    visitor = await api.client.get("/", headers=host)
    assert (visitor.status_code, visitor.json()["error"]["code"]) == (404, "ADDRESS_UNKNOWN")
    assert (await victim.inside("POST", "/process.Process/List", json={})).status_code == 401
    assert await status_of(victim) == "stopped"


async def test_a_start_in_the_name_of_a_deactivated_account_is_refused(
    api: PlatformApi, victim: Victim
) -> None:
    await act(api, victim.owner, {"sandbox_id": victim.sandbox_id}, "stop")
    await victim.be_deactivated()
    with pytest.raises(OwnerInactiveError):
        await api.part.wired.targets.wake(victim.sandbox_id)
    assert await status_of(victim) == "stopped"


async def test_a_sandbox_that_an_admin_has_ended_is_not_woken_by_requests(
    api: PlatformApi,
) -> None:
    resumes = {"autoPause": True, "autoResume": {"enabled": True}}
    victim = await victim_of(api, await api.account(), await api.admin(), **resumes)
    path = f"/admin/sandboxes/{victim.sandbox_id}/end"
    ended = await api.post(path, victim.admin, {"reason": "abuse"})
    assert (ended["status"], ended["wake_on_request"]) == ("stopped", False)
    host = {"Host": f"3000-{victim.sandbox_id}.localhost"}
    assert (await api.client.get("/", headers=host)).status_code == 502
    assert (await victim.inside("POST", "/process.Process/List", json={})).status_code == 401
    assert await status_of(victim) == "stopped"
    own = {"sandbox_id": victim.sandbox_id}
    await act(api, victim.owner, own, "start")
    assert (await look(api, victim.owner, own))["status"] == "running"

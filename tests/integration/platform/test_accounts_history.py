"""After any run of many callers at once, the events of accounts, keys, projects, templates and
notifications lead to exactly what the tables hold, and every change was counted."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sandyard.platform.events.verification import verify_platform
from sandyard.platform.schema.tables import events
from tests.contract.platform.access.test_isolation import TEMPLATE, key_of
from tests.support.clocks import RunningClock
from tests.support.platform.in_process import (
    PASSWORD,
    Caller,
    MigratedEngines,
    PlatformApi,
    platform_api,
    read_outbox,
    token_in,
)
from tests.support.storage.engines import ONE_SQL_ENGINE

CALLERS, STEPS = 6, 25
NAMES = ("one", "two", "three")


@pytest.fixture(params=ONE_SQL_ENGINE)
async def quiet(
    request: pytest.FixtureRequest, migrated: MigratedEngines, tmp_path: Path
) -> AsyncIterator[PlatformApi]:
    """The Platform without sandboxes."""
    url = await migrated.copy(request.param, tmp_path)
    async with platform_api(url, tmp_path, RunningClock()) as api:
        yield api


class Crowd:
    """Callers who do what they may and may not, to the same few things."""

    def __init__(self, api: PlatformApi, callers: list[Caller], seed: int) -> None:
        self._api = api
        self._callers = callers
        self._random = random.Random(seed)
        self.statuses: set[int] = set()

    async def run(self) -> None:
        await asyncio.gather(*(self._one() for _ in range(CALLERS)))

    async def _one(self) -> None:
        doings = (self._thing, self._thing, self._thing, self._profile, self._admin, self._signup)
        for _ in range(STEPS):
            await self._random.choice(doings)(self._random.choice(self._callers))

    async def _call(self, method: str, path: str, caller: Caller | None, body: Any = None) -> Any:
        answer = await self._api.call(method, path, caller, json=body)
        self.statuses.add(answer.status_code)
        return answer.json() if answer.is_success and answer.content else {}

    async def _thing(self, caller: Caller) -> None:
        path, id_, actions = self._random.choice(
            [
                ("/projects", "project_id", ["archive", "unarchive", "make-default"]),
                ("/api-keys", "key_id", ["activate", "deactivate"]),
                ("/templates", "template_id", []),
                ("/notifications", "notification_id", ["read"]),
            ]
        )
        body = {"name": self._random.choice(NAMES)}
        if path != "/notifications":
            await self._call("POST", path, caller, TEMPLATE | body if id_[0] == "t" else body)
        page = await self._call("GET", path, caller)
        found = [each for key in page if key != "next_cursor" for each in page[key]]
        found = [each for each in found if each.get("name") != "by key"]
        if not found:
            return
        this = f"{path}/{self._random.choice(found)[id_]}"
        doing = self._random.choice(["change", "delete", *actions, *actions])
        if doing == "change":
            await self._call("PATCH", this, caller, body)
        elif doing == "delete":
            await self._call("DELETE", this, caller)
        else:
            await self._call("POST", f"{this}/{doing}", caller)

    async def _profile(self, caller: Caller) -> None:
        amount = f"{self._random.randrange(9)}.{self._random.randrange(9)}"
        await self._call("PATCH", "/me", caller, {"spend_threshold": amount})
        path = self._random.choice(["/auth/logout", "/notifications/read-all"])
        await self._call("POST", path, caller)
        await self._call("POST", "/auth/password/forgot", None, {"email": caller.email})
        wrong = self._random.choice([PASSWORD, "wrong password"])
        await self._call("POST", "/auth/login", None, {"login": caller.email, "password": wrong})

    async def _admin(self, caller: Caller) -> None:
        other = self._random.choice(self._callers).account_id
        path = f"/admin/users/{other}"
        for _ in range(2):
            doing = self._random.choice(["activate", "activate", "deactivate", "role"])
            if doing == "role":
                role = {"role": self._random.choice(["admin", "user"])}
                await self._call("PUT", f"{path}/role", caller, role)
            else:
                await self._call("POST", f"{path}/{doing}", caller)
        notice = {"title": "t", "message": "m"}
        await self._call("POST", "/admin/notifications", caller, notice)

    async def _signup(self, _caller: Caller) -> None:
        name = f"new-{self._random.randrange(4)}"
        body = {"email": f"{name}@example.com", "username": name, "password": PASSWORD}
        await self._call("POST", "/auth/signup", None, body)
        await self._call("POST", "/auth/resend", None, {"email": body["email"]})
        outbox = read_outbox(self._api.data_dir)
        mails = [mail for mail in outbox if "open your account" in str(mail.get_content())]
        for mail in self._random.sample(mails, min(2, len(mails))):
            await self._call("POST", "/auth/verify", None, {"token": token_in(mail)})


@pytest.mark.parametrize("seed", [1, 2])
async def test_events_lead_to_the_tables_after_any_run(quiet: PlatformApi, seed: int) -> None:
    admins = [await quiet.admin() for _ in range(2)]
    users = [await quiet.account() for _ in range(2)]
    callers = [await key_of(quiet, each) for each in (*admins, *users)]
    crowd = Crowd(quiet, callers, seed)
    await crowd.run()
    await quiet.part.background.finish(within_sec=60)
    assert {200, 201, 204, 409} <= crowd.statuses
    assert not [status for status in crowd.statuses if status >= 500]
    report = await verify_platform(quiet.part.database)
    assert report.problems == []
    assert report.subjects > 10
    await each_change_was_counted(quiet)


async def each_change_was_counted(api: PlatformApi) -> None:
    """A subject's events are numbered from 1 on without a gap, in the order of the log."""
    statement = (
        sa.select(events.c.subject, events.c.sequence)
        .where(events.c.sequence.is_not(None))
        .order_by(events.c.position)
    )
    rows = await api.part.database.read(lambda connection: connection.execute(statement).all())
    numbers: dict[str, list[int]] = {}
    for row in rows:
        numbers.setdefault(row.subject, []).append(row.sequence)
    assert all(found == [*range(1, len(found) + 1)] for found in numbers.values())
    assert max(len(found) for found in numbers.values()) > 5


async def test_the_same_name_at_once_is_one_project_key_and_template(quiet: PlatformApi) -> None:
    ann = await quiet.account()
    for path, body in (("/projects", {}), ("/api-keys", {}), ("/templates", TEMPLATE)):
        answers = await asyncio.gather(
            *(quiet.call("POST", path, ann, json=body | {"name": "same"}) for _ in range(8))
        )
        assert sorted(each.status_code for each in answers) == [201] + [409] * 7
    notices = (await quiet.get("/notifications", ann))["notifications"]
    assert len(notices) == 1, "of the one key"
    assert (await verify_platform(quiet.part.database)).problems == []


async def test_a_key_that_is_revoked_while_it_is_used_opens_nothing_after(
    quiet: PlatformApi,
) -> None:
    ann = await quiet.account()
    made = await quiet.post("/api-keys", ann, {"name": "ci"})
    by_key = Caller(ann.account_id, "", "", {"X-API-Key": made["api_key"]})
    path = f"/api-keys/{made['key_id']}"
    answers = await asyncio.gather(
        *(quiet.call("PATCH", path, by_key, json={"description": str(n)}) for n in range(8)),
        quiet.call("DELETE", path, ann),
        quiet.call("DELETE", path, ann),
        *(quiet.call("PATCH", path, by_key, json={"description": str(n)}) for n in range(8)),
    )
    assert sorted(each.status_code for each in answers[8:10]) == [204, 404]
    assert {each.status_code for each in answers} <= {200, 204, 401, 404}
    assert (await quiet.call("GET", "/me", by_key)).status_code == 401
    log = (await quiet.get("/events", ann, subject=made["key_id"], limit=100))["events"]
    assert max(log, key=lambda event: event["sequence"])["kind"] == "key.revoked"
    assert (await verify_platform(quiet.part.database)).problems == []


async def test_admins_defaults_and_sign_ups_in_a_race_keep_their_history(
    quiet: PlatformApi,
) -> None:
    admins = [await key_of(quiet, await quiet.admin()) for _ in range(3)]
    projects = [await quiet.post("/projects", admins[0], {"name": name}) for name in NAMES]
    signup = {"email": "new@example.com", "username": "new", "password": PASSWORD}
    await quiet.post("/auth/signup", None, signup)
    token = {"token": await quiet.last_token()}
    answers = await asyncio.gather(
        *(
            quiet.call("POST", f"/projects/{each['project_id']}/make-default", admins[0])
            for each in projects
        ),
        *(quiet.call("POST", "/auth/verify", json=token) for _ in range(4)),
        *(
            quiet.call("PUT", f"/admin/users/{each.account_id}/role", each, json={"role": "user"})
            for each in admins
        ),
    )
    statuses = [each.status_code for each in answers]
    assert statuses[:3] == [200] * 3
    assert sorted(statuses[3:7]) == [201, 400, 400, 400]
    assert sorted(statuses[7:]) == [200, 200, 409]
    defaults = (await quiet.get("/projects", admins[0], is_default=True))["projects"]
    assert len(defaults) == 1
    assert (await verify_platform(quiet.part.database)).problems == []

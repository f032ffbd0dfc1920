"""Quotas of accounts hold on each engine, also where several make things at once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clocks import ManualClock
from tests.support.platform.in_process import (
    MigratedEngines,
    PlatformApi,
    code_of,
    platform_api,
    platform_replicas,
)
from tests.support.storage.engines import SQL_ENGINES

LIMIT = 4
BODIES: dict[str, dict[str, Any]] = {
    "projects": {},
    "templates": {"category": "web", "language": "html", "repository_url": "builtin:static"},
    "sandboxes": {},
}
IDS = {"projects": "project_id", "templates": "template_id", "sandboxes": "sandbox_id"}


@pytest.fixture(params=SQL_ENGINES)
async def replicas(
    request: pytest.FixtureRequest, migrated: MigratedEngines, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[list[PlatformApi]]:
    url = await migrated.copy(request.param, tmp_path)
    limits: dict[str, Any] = {"projects_per_account": LIMIT, "templates_per_account": LIMIT}
    of_sandboxes = {"sandboxes_per_account": LIMIT}
    async with platform_replicas(url, tmp_path, clock, sandboxes=of_sandboxes, **limits) as made:
        yield made


@pytest.mark.parametrize("noun", BODIES)
async def test_an_account_has_no_more_than_its_quota(
    replicas: list[PlatformApi], noun: str
) -> None:
    first = replicas[0]
    ann, bob = await first.account(), await first.account()
    body = dict(BODIES[noun])
    if noun == "sandboxes":
        [template, *_] = (await first.get("/templates", ann))["templates"]
        body["template_id"] = template["template_id"]

    async def make(name: str, api: PlatformApi = first, caller: Any = ann) -> tuple[int, str, Any]:
        answer = await api.call("POST", f"/{noun}", caller, json=body | {"name": name})
        made = answer.json()
        return (201, "", made) if answer.status_code == 201 else (*code_of(answer), made)

    asked = 8
    found = await asyncio.gather(*(make(f"{n}", replicas[n % len(replicas)]) for n in range(asked)))
    there = LIMIT - (noun == "projects")  # an account begins with one
    refused = (409, f"{noun.upper()}_LIMIT_EXCEEDED")
    assert Counter(each[:2] for each in found) == {(201, ""): there, refused: asked - there}
    [error, *_] = [made["error"] for status, _, made in found if status == 409]
    assert error["details"] == {"limit": LIMIT}
    assert error["message"].endswith(f"The limit is {LIMIT}.")
    assert (await make("bobs", caller=bob))[0] == 201
    [one, *_] = [made for status, _, made in found if status == 201]
    assert (await first.call("DELETE", f"/{noun}/{one[IDS[noun]]}", ann)).is_success
    assert (await make("again"))[0] == 201
    assert (await make("more"))[:2] == refused


async def test_requests_of_an_account_are_limited(
    migrated: MigratedEngines, tmp_path: Path, clock: ManualClock
) -> None:
    await migrated.copy("sqlite", tmp_path)
    async with platform_api(None, tmp_path, clock, requests_per_account="5/hour") as api:
        ann, bob = await api.account(), await api.account()
        found = [await api.call("GET", "/me", ann) for _ in range(6)]
        assert [each.status_code for each in found] == [200] * 5 + [429]
        assert code_of(found[-1]) == (429, "RATE_LIMIT_EXCEEDED")
        assert 1 <= int(found[-1].headers["Retry-After"]) <= 3600
        await api.get("/me", bob)

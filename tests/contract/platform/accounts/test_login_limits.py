"""Logins that fail are limited for all replicas together, and never lock the owner out."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sandyard.kit.clock import utc_time
from sandyard.platform.accounts.logins.model import KNOWN_NETWORKS
from sandyard.platform.accounts.logins.sql import SqlLoginAttempts
from sandyard.platform.schema.tables import login_failures, login_networks
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import (
    PASSWORD,
    MigratedEngines,
    PlatformApi,
    code_of,
    platform_replicas,
)
from tests.support.storage.engines import SQL_ENGINES

INVALID, TOO_MANY, IN = (401, "INVALID_CREDENTIALS"), (429, "RATE_LIMIT_EXCEEDED"), (200, "")
LIMITS: dict[str, Any] = {
    "auth_rate_limit_per_account": "3/minute",
    "auth_rate_limit_per_address": "8/minute",
    "failed_logins_per_account": "12/minute",
}
WRONG = "wrong password"
STRANGER, OWNER = "203.0.113.1", "198.51.100.1"


@pytest.fixture(params=SQL_ENGINES)
async def replicas(
    request: pytest.FixtureRequest, migrated: MigratedEngines, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[list[PlatformApi]]:
    url = await migrated.copy(request.param, tmp_path)
    proxies = "127.0.0.0/8"
    async with platform_replicas(url, tmp_path, clock, trusted_proxies=proxies, **LIMITS) as made:
        yield made


async def attempt(
    api: PlatformApi, login: str, address: str, password: str = WRONG
) -> tuple[int, str]:
    answer = await api.call(
        "POST",
        "/auth/login",
        json={"login": login, "password": password},
        headers={"X-Forwarded-For": f"10.9.9.9, {address}"},
    )
    if answer.status_code == 429:
        assert answer.json()["error"]["message"].startswith("Too many failed logins.")
        assert 1 <= answer.json()["error"]["retry_after"] <= 60
        assert answer.headers["Retry-After"]
    return IN if answer.status_code == 200 else code_of(answer)


async def rows(api: PlatformApi, table: sa.Table) -> list[Any]:
    return await api.part.database.read(
        lambda connection: list(connection.execute(sa.select(table)).all())
    )


@pytest.mark.parametrize("name", ["Ann", "nobody"])
async def test_failures_of_a_name_from_an_address_are_counted_together(
    replicas: list[PlatformApi], name: str
) -> None:
    first, last = replicas[0], replicas[-1]
    await first.account("Ann")
    found = [await attempt(each, name, STRANGER) for each in (first, last, first)]
    assert found == [INVALID] * 3
    for api in replicas:
        assert await attempt(api, name, STRANGER, PASSWORD) == TOO_MANY
        assert await attempt(api, name.upper(), STRANGER) == TOO_MANY
    first.clock.advance(60)
    assert await attempt(last, name, STRANGER) == INVALID


async def test_failures_of_a_name_do_not_tell_whose_address_it_is(
    replicas: list[PlatformApi],
) -> None:
    [api, *_] = replicas
    ann = await api.account("Ann")
    for _ in range(3):
        await attempt(api, "Ann", STRANGER)
    assert await attempt(api, "Ann", STRANGER) == TOO_MANY
    assert await attempt(api, ann.email, STRANGER) == INVALID


async def test_a_strangers_failures_do_not_stop_the_owner(replicas: list[PlatformApi]) -> None:
    first, last = replicas[0], replicas[-1]
    await first.account("Ann")
    for _ in range(20):
        await attempt(first, "Ann", STRANGER)
    assert await attempt(last, "Ann", OWNER, PASSWORD) == IN


async def test_attempts_at_once_do_not_pass_the_limit(replicas: list[PlatformApi]) -> None:
    await replicas[0].account("Ann")
    found = await asyncio.gather(
        *(attempt(replicas[n % len(replicas)], "Ann", STRANGER) for n in range(12))
    )
    assert sorted(found) == [INVALID] * 3 + [TOO_MANY] * 9


async def test_what_is_refused_counts_for_nothing(replicas: list[PlatformApi]) -> None:
    [api, *_] = replicas
    for n in range(8):
        assert await attempt(api, f"x{n}", STRANGER) == INVALID
    before = sorted(await rows(api, login_failures))
    for n in range(20):
        assert await attempt(api, "Ann" if n % 2 else f"y{n}", STRANGER) == TOO_MANY
    assert sorted(await rows(api, login_failures)) == before
    for name in ("Ann", "y0"):
        assert await attempt(api, name, OWNER) == INVALID


async def test_a_refusal_spends_no_argon2(replicas: list[PlatformApi]) -> None:
    [api, *_] = replicas
    await api.account("Ann")
    for _ in range(3):
        await attempt(api, "Ann", STRANGER)
    api.part.passwords.close()  # any password would fail from here on
    assert await attempt(api, "Ann", STRANGER, PASSWORD) == TOO_MANY


async def test_limits_of_address_and_account_spare_where_the_owner_logged_in_before(
    replicas: list[PlatformApi],
) -> None:
    [api, *_] = replicas
    ann = await api.account("Ann")
    assert await attempt(api, "Ann", OWNER, PASSWORD) == IN
    for n in range(12):
        assert await attempt(api, ann.username, f"203.0.113.{n}") == INVALID
    for n in range(8):
        await attempt(api, f"x{n}", OWNER)
    assert await attempt(api, "x", OWNER) == TOO_MANY, "the address"
    assert await attempt(api, "Ann", "203.0.113.99", PASSWORD) == TOO_MANY, "the account"
    for _ in range(3):
        assert await attempt(api, "Ann", OWNER, PASSWORD) == IN


async def test_who_reads_the_mail_is_let_in_where_he_read_it(replicas: list[PlatformApi]) -> None:
    [api, *_] = replicas
    ann = await api.account("Ann")
    for n in range(12):
        await attempt(api, "Ann", f"203.0.113.{n}")
    new = "another password"
    await api.post("/auth/password/forgot", None, {"email": ann.email})
    reset = await api.call(
        "POST",
        "/auth/password/reset",
        json={"token": await api.last_token(), "password": new},
        headers={"X-Forwarded-For": OWNER},
    )
    assert reset.status_code == 200
    assert await attempt(api, "Ann", OWNER, new) == IN
    assert await attempt(api, "Ann", "203.0.113.99", new) == TOO_MANY


async def test_a_right_password_forgives_the_attempts_before_it(
    replicas: list[PlatformApi],
) -> None:
    [api, *_] = replicas
    await api.account("Ann")
    for _ in range(6):
        for _ in range(2):
            assert await attempt(api, "Ann", OWNER) == INVALID
        assert await attempt(api, "Ann", OWNER, PASSWORD) == IN
    assert [await attempt(api, "Ann", OWNER) for _ in range(4)] == [INVALID] * 3 + [TOO_MANY]


async def test_an_account_of_ones_own_does_not_buy_attempts_on_others(
    replicas: list[PlatformApi],
) -> None:
    [api, *_] = replicas
    await api.account("Eve")
    found = []
    for n in range(10):
        assert await attempt(api, "Eve", STRANGER, PASSWORD) == IN
        found.append(await attempt(api, f"x{n}", STRANGER))
    assert found == [INVALID] * 8 + [TOO_MANY] * 2


async def test_what_is_kept_is_bounded_and_removed_in_time(replicas: list[PlatformApi]) -> None:
    [api, *_] = replicas
    ann = await api.account("Ann")
    await attempt(api, "my password by mistake", STRANGER)
    store, began = SqlLoginAttempts(api.part.database), utc_time(api.clock.now())
    for n in range(KNOWN_NETWORKS + 5):
        at = began + timedelta(seconds=n)
        await store.remember(ann.account_id, f"192.0.2.{n}", now=at)
    known = {row.network for row in await rows(api, login_networks)}
    assert known == {f"192.0.2.{n}" for n in range(5, KNOWN_NETWORKS + 5)}
    assert ann.username not in repr(await rows(api, login_failures))
    [job] = [job for job in api.part.schedule if job.name == "logins"]
    api.clock.advance(60)
    assert (await api.part.runner.run(job)).rows_removed > 0
    assert await rows(api, login_failures) == []
    assert len(await rows(api, login_networks)) == KNOWN_NETWORKS
    api.clock.advance(90 * 86_400)
    await api.part.runner.run(job)
    assert await rows(api, login_networks) == []

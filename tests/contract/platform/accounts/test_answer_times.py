"""How long an answer takes tells nobody whether an address or a name is known.

What takes long is counted, not timed: password hashes before the answer, and mail after it.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from sandyard.platform.accounts.passwords import Argon2Passwords
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import (
    CHEAP_PASSWORDS,
    PASSWORD,
    MigratedEngines,
    PlatformApi,
    platform_api,
)
from tests.support.services.smtp_server import SmtpServer, smtp_server
from tests.support.storage.engines import SQL_ENGINES


class CountingPasswords(Argon2Passwords):
    """Real ones, which tell how many were hashed or verified, and at which cost."""

    def __init__(self) -> None:
        super().__init__(**CHEAP_PASSWORDS)
        self.count = 0

    async def hash(self, password: str) -> str:
        self.count += 1
        return await super().hash(password)

    async def verify(self, password: str, password_hash: str) -> bool:
        assert not self.is_outdated(password_hash), "another cost takes another time"
        self.count += 1
        return await super().verify(password, password_hash)


@pytest.fixture
def passwords() -> CountingPasswords:
    return CountingPasswords()


@pytest.fixture
async def mail_server() -> AsyncIterator[SmtpServer]:
    """It hangs until a test lets it go on."""
    async with smtp_server(is_open=False) as server:
        yield server


@pytest.fixture(params=SQL_ENGINES)
async def api(
    request: pytest.FixtureRequest,
    migrated: MigratedEngines,
    tmp_path: Path,
    clock: ManualClock,
    passwords: CountingPasswords,
    mail_server: SmtpServer,
) -> AsyncIterator[PlatformApi]:
    url = await migrated.copy(request.param, tmp_path)
    smtp = SecretStr(f"smtp://127.0.0.1:{mail_server.port}")
    async with platform_api(url, tmp_path, clock, passwords=passwords, smtp_url=smtp) as api:
        yield api
        mail_server.is_open.set()


async def known_and_unknown(api: PlatformApi) -> tuple[str, ...]:
    """The names of an account, of one that is not active, and of nobody."""
    await api.account("known")
    off, admin = await api.account("inactive"), await api.admin()
    await api.post(f"/admin/users/{off.account_id}/deactivate", admin)
    return "known", "inactive", "stranger"


async def spent(
    api: PlatformApi, passwords: CountingPasswords, path: str, body: dict[str, Any]
) -> tuple[int, int]:
    """The status of the answer, and how many passwords were hashed for it."""
    before = passwords.count
    answer = await api.call("POST", path, json=body)
    return answer.status_code, passwords.count - before


async def test_a_refused_login_costs_one_hash_whoever_is_meant(
    api: PlatformApi, passwords: CountingPasswords
) -> None:
    for name in await known_and_unknown(api):
        for login in (name, f"{name}@example.com"):
            body = {"login": login, "password": "wrong password"}
            assert await spent(api, passwords, "/auth/login", body) == (401, 1), login
    right = {"login": "inactive", "password": PASSWORD}
    assert await spent(api, passwords, "/auth/login", right) == (401, 1)


async def test_no_answer_waits_for_a_mail_and_each_costs_the_same(
    api: PlatformApi, passwords: CountingPasswords, mail_server: SmtpServer
) -> None:
    """If an answer waited for its mail, it would not come: the mail server hangs."""
    for name in await known_and_unknown(api):
        email = {"email": f"{name}@example.com"}
        signup = email | {"username": f"{name}-2", "password": PASSWORD}
        assert await spent(api, passwords, "/auth/signup", signup) == (202, 1), name
        assert await spent(api, passwords, "/auth/password/forgot", email) == (202, 0), name
        assert await spent(api, passwords, "/auth/resend", email) == (202, 0), name
    assert mail_server.mails == []
    mail_server.is_open.set()
    await api.part.background.finish(within_sec=60)
    assert len(mail_server.mails) >= 4, "three sign-ups, and a reset of the active account"

"""The Platform in this process, on a real engine, for the tests."""

import asyncio
import email.policy
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from email.message import EmailMessage
from email.parser import BytesParser
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from sqlalchemy import event

from sandyard.bootstrap.addresses import sandbox_domain
from sandyard.entrypoints.http.api import create_app
from sandyard.entrypoints.http.middleware import InFlight
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.ids import account_id, resource_id
from sandyard.kit.sql.database import Database, PostgresDatabase, SqliteDatabase
from sandyard.platform.access.principal import Role
from sandyard.platform.accounts.context import IdMakers
from sandyard.platform.accounts.model import create_account
from sandyard.platform.accounts.passwords import Argon2Passwords
from sandyard.platform.events.entities import platform_transitions
from sandyard.platform.projects.model import create_default_project
from sandyard.platform.schema.migrations import MIGRATIONS as PLATFORM_MIGRATIONS
from sandyard.platform.wiring.accounts import OUTBOX
from sandyard.platform.wiring.part import PlatformPart
from sandyard.previews.stores.schema import MIGRATIONS as PREVIEWS_MIGRATIONS
from sandyard.runtime.ports import Runtime
from sandyard.settings import Settings, load_settings
from tests.support.clocks import ManualClock
from tests.support.storage.engines import create_database, create_template

PASSWORD = "correct horse battery"
CHEAP_PASSWORDS = {"time_cost": 1, "memory_kib": 8}
"""Argon2 all the same, at a cost that suits hundreds of tests."""


@dataclass(frozen=True, slots=True)
class Caller:
    """An account with a login."""

    account_id: str
    email: str
    username: str
    headers: dict[str, str]


@dataclass(slots=True)
class PlatformApi:
    part: PlatformPart
    app: FastAPI
    client: httpx.AsyncClient
    clock: ManualClock
    data_dir: Path
    _last: int = 0

    async def account(self, username: str | None = None, *, role: Role = Role.USER) -> Caller:
        """An account that is there and logged in."""
        self._last += 1
        username = username or f"user-{self._last}"
        cause = Cause.by("operator", self.clock)
        made = create_account(
            account_id=account_id(),
            email=f"{username}@example.com",
            username=username,
            full_name=None,
            password_hash=await self.part.passwords.hash(PASSWORD),
            role=role,
            cause=cause,
        )
        account = made.result
        project = create_default_project(
            project_id=resource_id("prj"), account_id=account.account_id, cause=cause
        )
        assert await platform_transitions(self.part.database).apply(made, project)
        login = self.part.logins.issue(account_id=account.account_id, token_version=0, now=cause.at)
        headers = {"Authorization": f"Bearer {login.access_token}"}
        return Caller(account.account_id, account.email, username, headers)

    async def admin(self) -> Caller:
        return await self.account(role=Role.ADMIN)

    async def call(
        self, method: str, path: str, caller: Caller | None = None, **options: Any
    ) -> httpx.Response:
        headers = (caller.headers if caller else {}) | options.pop("headers", {})
        return await self.client.request(method, f"/api/v1{path}", headers=headers, **options)

    async def get(self, path: str, caller: Caller, **parameters: Any) -> Any:
        """The body of a call that must succeed."""
        answer = await self.call("GET", path, caller, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, caller: Caller | None, body: Any = None) -> Any:
        answer = await self.call("POST", path, caller, json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def mails(self) -> list[EmailMessage]:
        """All mails so far, the oldest first."""
        await self.part.background.finish(within_sec=60)
        return read_outbox(self.data_dir)

    async def last_token(self) -> str:
        return token_in((await self.mails())[-1])


def read_outbox(data_dir: Path) -> list[EmailMessage]:
    parser = BytesParser(EmailMessage, policy=email.policy.default)
    files = sorted((data_dir / OUTBOX).glob("*.eml"), key=lambda file: file.stat().st_mtime_ns)
    return [parser.parsebytes(file.read_bytes()) for file in files]


def token_in(mail: EmailMessage) -> str:
    found = re.search(r"^Token: (\S+)\r?$", mail.get_content(), re.MULTILINE)
    assert found is not None, mail.get_content()
    return found[1]


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@dataclass(frozen=True, slots=True)
class MigratedEngines:
    """A database of each engine at the newest schemas of the Platform and Previews, to be copied
    for each test."""

    sqlite: Path
    """The folder with the files."""
    postgres_url: str

    async def copy(self, engine: str, data_dir: Path) -> str | None:
        """A database of its own; its URL, or None if it is a file in the data dir."""
        if engine == "sqlite":
            for file in self.sqlite.glob("*.db"):
                shutil.copy(file, data_dir)
            return None
        url = sa.make_url(self.postgres_url)
        server_url = url.set(database="postgres").render_as_string(hide_password=False)
        return await create_database(server_url, template=str(url.database))


def migrate_engines(folder: Path, postgres_url: str) -> MigratedEngines:
    async def migrate() -> str:
        url = await create_template(postgres_url)
        for migrations in (PLATFORM_MIGRATIONS, PREVIEWS_MIGRATIONS):
            databases: list[Database] = [
                SqliteDatabase(folder / f"{migrations.part}.db", schema=migrations.part),
                PostgresDatabase(sa.make_url(url), pool_size=1),
            ]
            for database in databases:
                await migrations.upgrade(database)
                await database.close()
        return url

    return MigratedEngines(folder, asyncio.run(migrate()))


@asynccontextmanager
async def platform_api(
    url: str | None,
    data_dir: Path,
    clock: ManualClock,
    *,
    make: IdMakers | None = None,
    passwords: Argon2Passwords | None = None,
    runtime: Runtime | None = None,
    **settings: Any,
) -> AsyncIterator[PlatformApi]:
    chosen = platform_settings(url, **settings)
    part = PlatformPart(
        chosen,
        data_dir=data_dir,
        url_of=sandbox_domain(chosen).url_of,
        clock=clock,
        passwords=passwords or Argon2Passwords(**CHEAP_PASSWORDS),
        make=make,
        runtime=runtime,
    )
    app = create_app(chosen, [part], registry=CollectorRegistry(), in_flight=InFlight())
    transport = httpx.ASGITransport(app)
    try:
        await part.prepare()
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield PlatformApi(part, app, client, clock, data_dir)
    finally:
        await part.close()


@asynccontextmanager
async def platform_replicas(
    url: str | None, data_dir: Path, clock: ManualClock, **settings: Any
) -> AsyncIterator[list[PlatformApi]]:
    """Two on PostgreSQL; a SQLite file has one process."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(platform_api(url, data_dir, clock, **settings))
            for _ in range(1 if url is None else 2)
        ]


def platform_settings(
    url: str | None,
    *,
    sandboxes: dict[str, Any] | None = None,
    e2b: dict[str, Any] | None = None,
    trusted_proxies: str | None = None,
    **settings: Any,
) -> Settings:
    loaded = _loaded_settings()
    unlimited = {
        "auth_rate_limit_per_account": "100000/minute",
        "auth_rate_limit_per_address": "100000/minute",
        "requests_per_account": "1000000/minute",
        "writes_per_account": "1000000/minute",
    }
    secret = {
        "jwt_secret": SecretStr("j" * 40),
        "gateway_secret": SecretStr("g" * 40),
        "secrets_key": SecretStr("s" * 40),
        "public_url": "http://test",
    }
    server = {
        "parts": "platform",
        "database_url": None if url is None else SecretStr(url),
        "database_pool_size": 12,  # a crowd on a busy machine holds some for long
        "trusted_proxies": trusted_proxies,
    }
    return replace(
        loaded,
        server=loaded.server.model_copy(update=server),
        platform=loaded.platform.model_copy(update=unlimited | secret | settings),
        sandboxes=loaded.sandboxes.model_copy(update=sandboxes or {}),
        e2b=loaded.e2b.model_copy(update=e2b or {}),
    )


@cache
def _loaded_settings() -> Settings:
    """Once for all tests: to read the environment takes longer than to build the Platform."""
    return load_settings()


@contextmanager
def counted_statements() -> Iterator[list[str]]:
    """Every SQL statement that any engine is given inside, but for those by which the right to use
    a store is renewed in the background."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_others: Any) -> None:
        if "pg_catalog" not in statement and "store_state" not in statement:
            statements.append(statement)

    event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(sa.Engine, "before_cursor_execute", note)

"""Access to sandboxes: by token, by signed link."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sandyard.e2b_api.envd.machine import Credentials
from sandyard.e2b_api.errors import AccessTokenMissingError, LinkOverError, SandboxGoneError
from sandyard.e2b_api.sandboxes.entrance import Entrance
from sandyard.e2b_api.tokens import FileLink, Holder, SandboxTokens, signature_of
from sandyard.platform.access.credentials import AccountCredential, KeyCredential
from sandyard.platform.access.principal import Role, Scope
from sandyard.platform.sandboxes.model import Sandbox, Status
from tests.support.clocks import ManualClock
from tests.unit.platform.sandboxes.examples import NOW, OWNER, SANDBOX

TOKENS = SandboxTokens(["the-secret-of-the-tests"])
AT = NOW.timestamp()
OTHER = replace(SANDBOX, sandbox_id="sbx-2")
ACCOUNT = AccountCredential(OWNER, Role.USER, is_active=True, token_version=1)
KEY = KeyCredential(ACCOUNT, "key-1", True, None, Scope.RUN, None)  # noqa: FBT003


class Stored:
    """Sandboxes of this node."""

    async def find(self, sandbox_id: str, **_account: object) -> Sandbox | None:
        known = (SANDBOX, OTHER)
        return next((each for each in known if each.sandbox_id == sandbox_id), None)

    async def active_on(self, _node: str) -> Sequence[Sandbox]:
        return [SANDBOX, OTHER]


class StoredCredentials:
    """One account with one key."""

    def __init__(self, key: KeyCredential) -> None:
        self._key = key

    async def find_account(self, account_id: str) -> AccountCredential | None:
        return self._key.account if account_id == self._key.account.account_id else None

    async def find_key_by_id(self, key_id: str) -> KeyCredential | None:
        return self._key if key_id == self._key.key_id else None

    async def with_keys(
        self, account_ids: Collection[str]
    ) -> Sequence[tuple[AccountCredential, Sequence[KeyCredential]]]:
        account = self._key.account
        return [(account, [self._key])] if account.account_id in account_ids else []


def entrance(key: KeyCredential = KEY) -> Entrance:
    """Nothing runs, so that nothing else is asked for."""
    unused: Any = None
    credentials: Any = StoredCredentials(key)
    return Entrance(
        sandboxes=Stored(),
        credentials=credentials,
        sessions=unused,
        targets=unused,
        variables=unused,
        tokens=TOKENS,
        templates=unused,
        sample=unused,
        clock=ManualClock(AT),
        node="here",
        disk_bytes=1,
    )


def token(sandbox_id: str, key_id: str | None = "key-1", version: int = 1, run: int = 0) -> str:
    return TOKENS.issue(Holder(sandbox_id, run, OWNER, version, key_id), at=AT)


def link(sandbox_id: str, expires_at: int | None = None) -> FileLink:
    unsigned = FileLink("a", "read", "", "", expires_at)
    return replace(unsigned, signature=signature_of(unsigned, token(sandbox_id)))


ACCEPTED = [
    Credentials("sbx-1", token("sbx-1")),
    Credentials("sbx-1", token("sbx-1", key_id=None)),
    Credentials("sbx-1", None, link("sbx-1")),
    Credentials("sbx-1", "wrong", link("sbx-1")),
    Credentials(None, None, link("sbx-1")),
    Credentials(None, None, link("sbx-2")),
]


@pytest.mark.parametrize("credentials", ACCEPTED)
async def test_a_token_or_a_link_of_the_sandbox_gives_access(credentials: Credentials) -> None:
    """It does not run: that is said to those with access only."""
    with pytest.raises(SandboxGoneError):
        await entrance().require_running(credentials)


@pytest.mark.parametrize(
    "credentials",
    [
        Credentials("sbx-1"),
        Credentials("sbx-3"),
        Credentials("sbx-1", token("sbx-2")),
        Credentials("sbx-1", token("sbx-1", version=0)),
        Credentials("sbx-1", token("sbx-1", run=1)),
        Credentials("sbx-1", token("sbx-1", run=1, key_id=None)),
        Credentials("sbx-1", token("sbx-1", key_id="key-2")),
        Credentials("sbx-3", token("sbx-3")),
        Credentials("sbx-3", token("sbx-3", key_id=None)),
        Credentials("sbx-1", None, link("sbx-2")),
        Credentials("sbx-1", None, replace(link("sbx-1"), path="b")),
        Credentials(None, token("sbx-1")),
        Credentials(None, None, link("sbx-3")),
    ],
)
async def test_other_credentials_are_refused(credentials: Credentials) -> None:
    for call in (entrance().require_running, entrance().enter):
        with pytest.raises(AccessTokenMissingError):
            await call(credentials)


@pytest.mark.parametrize(
    "key",
    [
        replace(KEY, account=replace(ACCOUNT, token_version=2)),
        replace(KEY, account=replace(ACCOUNT, is_active=False)),
        replace(KEY, is_active=False, account=replace(ACCOUNT, token_version=2)),
    ],
)
@pytest.mark.parametrize("credentials", ACCEPTED)
async def test_all_end_with_the_accounts_logins(
    credentials: Credentials, key: KeyCredential
) -> None:
    with pytest.raises(AccessTokenMissingError):
        await entrance(key).require_running(credentials)


@pytest.mark.parametrize(
    "key",
    [
        replace(KEY, is_active=False),
        replace(KEY, expires_at=NOW),
        replace(KEY, scope=Scope.READ),
        replace(KEY, key_id="key-2"),
    ],
)
@pytest.mark.parametrize("credentials", [ACCEPTED[0], *ACCEPTED[2:]])
async def test_those_of_a_key_end_with_it(credentials: Credentials, key: KeyCredential) -> None:
    with pytest.raises(AccessTokenMissingError):
        await entrance(key).require_running(credentials)


async def test_a_link_ends() -> None:
    over = Credentials("sbx-1", None, link("sbx-1", int(AT) - 1))
    with pytest.raises(LinkOverError):
        await entrance().require_running(over)


async def test_a_sandbox_that_does_not_run_is_gone() -> None:
    assert SANDBOX.status is not Status.RUNNING
    with pytest.raises(SandboxGoneError):
        await entrance().enter(Credentials("sbx-1", token("sbx-1")))

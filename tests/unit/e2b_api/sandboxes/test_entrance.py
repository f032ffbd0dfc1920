"""Access to sandboxes: by token, by signed link."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sandyard.e2b_api.envd.machine import Credentials
from sandyard.e2b_api.errors import AccessTokenMissingError, LinkOverError, SandboxGoneError
from sandyard.e2b_api.sandboxes.entrance import Entrance
from sandyard.e2b_api.tokens import FileLink, SandboxTokens, signature_of
from sandyard.platform.sandboxes.model import Sandbox, Status
from tests.support.clocks import ManualClock
from tests.unit.platform.sandboxes.examples import NOW, SANDBOX

TOKENS = SandboxTokens(["the-secret-of-the-tests"])
OTHER = replace(SANDBOX, sandbox_id="sbx-2")


class Stored:
    """Sandboxes of this node."""

    async def find(self, sandbox_id: str, **_account: object) -> Sandbox | None:
        known = (SANDBOX, OTHER)
        return next((each for each in known if each.sandbox_id == sandbox_id), None)

    async def active_on(self, _node: str) -> Sequence[Sandbox]:
        return [SANDBOX, OTHER]


def entrance() -> Entrance:
    """Nothing runs, so that nothing else is asked for."""
    unused: Any = None
    return Entrance(
        sandboxes=Stored(),
        sessions=unused,
        waking=unused,
        variables=unused,
        tokens=TOKENS,
        templates=unused,
        sample=unused,
        clock=ManualClock(NOW.timestamp()),
        node="here",
        disk_bytes=1,
    )


def link(sandbox_id: str, expires_at: int | None = None) -> FileLink:
    unsigned = FileLink("a", "read", "", "", expires_at)
    return replace(unsigned, signature=signature_of(unsigned, TOKENS.issue(sandbox_id)))


async def test_a_token_or_a_link_of_the_sandbox_gives_access() -> None:
    for credentials in (
        Credentials("sbx-1", TOKENS.issue("sbx-1")),
        Credentials("sbx-1", None, link("sbx-1")),
        Credentials("sbx-1", "wrong", link("sbx-1")),
        Credentials(None, None, link("sbx-1")),
    ):
        assert await entrance().authorize(credentials) == "sbx-1"
    assert await entrance().authorize(Credentials(None, None, link("sbx-2"))) == "sbx-2"


@pytest.mark.parametrize(
    "credentials",
    [
        Credentials("sbx-1"),
        Credentials("sbx-1", TOKENS.issue("sbx-2")),
        Credentials("sbx-1", None, link("sbx-2")),
        Credentials("sbx-1", None, replace(link("sbx-1"), path="b")),
        Credentials(None, TOKENS.issue("sbx-1")),
        Credentials(None, None, link("sbx-3")),
    ],
)
async def test_other_credentials_are_refused(credentials: Credentials) -> None:
    with pytest.raises(AccessTokenMissingError):
        await entrance().authorize(credentials)


async def test_a_link_ends() -> None:
    over = Credentials("sbx-1", None, link("sbx-1", int(NOW.timestamp()) - 1))
    with pytest.raises(LinkOverError):
        await entrance().authorize(over)


async def test_a_sandbox_that_does_not_run_is_gone() -> None:
    assert SANDBOX.status is not Status.RUNNING
    for sandbox_id in ("sbx-1", "sbx-3", None):
        with pytest.raises(SandboxGoneError):
            await entrance().enter(sandbox_id)

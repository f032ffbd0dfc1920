"""Access to the machine that this process runs in."""

import time
from dataclasses import replace

import pytest

from sandyard.e2b_api.envd.machine import Credentials
from sandyard.e2b_api.envd.standalone.machine import ThisMachine
from sandyard.e2b_api.errors import AccessTokenMissingError, LinkOverError, NoSuchUserError
from sandyard.e2b_api.tokens import FileLink, signature_of

TOKEN = "the-token"
MACHINE = ThisMachine(TOKEN, home="/home/user")


def link(expires_at: int | None = None) -> FileLink:
    unsigned = FileLink("a", "read", "", "", expires_at)
    return replace(unsigned, signature=signature_of(unsigned, TOKEN))


async def test_a_token_or_a_signed_link_gives_access() -> None:
    for credentials in (
        Credentials(None, TOKEN),
        Credentials("whatever", TOKEN),
        Credentials(None, None, link()),
        Credentials(None, "wrong", link(int(time.time()) + 60)),
    ):
        assert await MACHINE.enter(credentials) is MACHINE


async def test_other_credentials_are_refused() -> None:
    for credentials in (
        Credentials(None),
        Credentials(None, "wrong"),
        Credentials(None, None, replace(link(), path="b")),
        Credentials(None, None, replace(link(), operation="write")),
    ):
        with pytest.raises(AccessTokenMissingError):
            await MACHINE.enter(credentials)
    with pytest.raises(LinkOverError):
        await MACHINE.enter(Credentials(None, None, link(int(time.time()) - 60)))


async def test_all_users_are_the_process_s_own() -> None:
    for user in (None, "user", "root"):
        session = await MACHINE.open(user)
        assert (session.home, session.folder) == ("/home/user", "/home/user")
        assert (await MACHINE.variables(session))["HOME"] == "/home/user"
    with pytest.raises(NoSuchUserError):
        await MACHINE.open("somebody")

"""Access tokens and signatures: each for one sandbox, one file, one use."""

import base64
import hashlib
from dataclasses import replace

import pytest

from sandyard.e2b_api.tokens import FileLink, Holder, SandboxTokens, UploadTokens, key_id_of

TOKENS = SandboxTokens(["first", "second"])
NOW = 1_000.0
WEEK = 7 * 86_400
HOLDER = Holder("sbx-1", 0, "acc-1", token_version=3, key_id="key-1")


def link(token: str, *, expires_at: int | None = 1_000) -> FileLink:
    """As an SDK makes it."""
    text = f"/a:read:user:{token}" + ("" if expires_at is None else f":{expires_at}")
    digest = hashlib.sha256(text.encode()).digest()
    signature = "v1_" + base64.b64encode(digest).rstrip(b"=").decode()
    return FileLink("/a", "read", "user", signature, expires_at)


def test_a_token_opens_its_sandbox_for_its_holder_and_nothing_else() -> None:
    token = TOKENS.issue(HOLDER, at=NOW)
    assert TOKENS.opens(token, HOLDER, at=NOW)
    for forged in (token[:-1], "", "é"):
        assert not TOKENS.opens(forged, HOLDER, at=NOW)


@pytest.mark.parametrize(
    "changes",
    [
        {"sandbox_id": "sbx-2"},
        {"access_version": 1},
        {"account_id": "acc-2"},
        {"token_version": 4},
        {"key_id": "key-2"},
        {"key_id": None},
    ],
)
def test_a_token_is_for_its_holder(changes: dict[str, object]) -> None:
    other: Holder = replace(HOLDER, **changes)  # type: ignore[arg-type]
    assert not TOKENS.opens(TOKENS.issue(HOLDER, at=NOW), other, at=NOW)


def test_a_token_names_its_key() -> None:
    assert key_id_of(TOKENS.issue(HOLDER, at=NOW)) == "key-1"
    assert key_id_of(TOKENS.issue(replace(HOLDER, key_id=None), at=NOW)) is None


def test_a_token_ends_after_the_week_that_follows_its_own() -> None:
    token = TOKENS.issue(HOLDER, at=NOW)
    assert TOKENS.opens(token, HOLDER, at=2 * WEEK - 1)
    assert not TOKENS.opens(token, HOLDER, at=2 * WEEK)
    assert not TOKENS.signs(link(token, expires_at=None), HOLDER, at=2 * WEEK)


def test_secrets_are_rotated() -> None:
    before = SandboxTokens(["second"]).issue(HOLDER, at=NOW)
    assert TOKENS.opens(before, HOLDER, at=NOW)
    assert TOKENS.issue(HOLDER, at=NOW) != before
    assert not SandboxTokens(["first"]).opens(before, HOLDER, at=NOW)


@pytest.mark.parametrize(("expires_at", "holds"), [(None, True), (1_000, True), (999, False)])
def test_a_signature_holds_until_its_second_is_over(expires_at: int | None, *, holds: bool) -> None:
    made = link(TOKENS.issue(HOLDER, at=NOW), expires_at=expires_at)
    assert TOKENS.signs(made, HOLDER, at=NOW)
    assert made.is_over(NOW) is not holds


@pytest.mark.parametrize(
    "changes",
    [{"path": "/b"}, {"operation": "write"}, {"username": ""}, {"expires_at": 2_000}],
)
def test_a_signature_is_for_what_it_says(changes: dict[str, object]) -> None:
    made = link(TOKENS.issue(HOLDER, at=NOW))
    assert TOKENS.signs(made, HOLDER, at=NOW)
    assert not TOKENS.signs(replace(made, **changes), HOLDER, at=NOW)  # type: ignore[arg-type]
    assert not TOKENS.signs(made, replace(HOLDER, sandbox_id="sbx-2"), at=NOW)


def test_a_link_for_uploads_stands_for_its_account_for_an_hour() -> None:
    links = UploadTokens(["first", "second"])
    made = links.issue("acc-1", "tpl-1/hash", at=NOW)
    end = int(NOW) + 3600

    def account_of(token: str, named: str = "tpl-1/hash", at: float = NOW) -> str | None:
        return links.account_of(token, named, at=at)

    assert account_of(made) == account_of(made, at=end - 1) == "acc-1"
    assert UploadTokens(["other", "first"]).account_of(made, "tpl-1/hash", at=NOW) == "acc-1"
    later = made.replace(str(end), str(end + 9999))
    for forged in (
        made.replace("acc-1", "acc-2"),
        later,
        "",
        "acc-1.",
        "acc-1",
        "acc-1..",
        "a.b.c",
    ):
        assert account_of(forged) is None
    assert account_of(made, "tpl-2/hash") is None
    assert account_of(made, at=end) is None

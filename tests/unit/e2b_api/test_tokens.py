"""Access tokens and signatures: each for one sandbox, one file, one use."""

import base64
import hashlib
from dataclasses import replace

import pytest

from sandyard.e2b_api.tokens import FileLink, SandboxTokens, UploadTokens

TOKENS = SandboxTokens(["first", "second"])
NOW = 1_000.0


def link(token: str, *, expires_at: int | None = 1_000) -> FileLink:
    """As an SDK makes it."""
    text = f"/a:read:user:{token}" + ("" if expires_at is None else f":{expires_at}")
    digest = hashlib.sha256(text.encode()).digest()
    signature = "v1_" + base64.b64encode(digest).rstrip(b"=").decode()
    return FileLink("/a", "read", "user", signature, expires_at)


def test_a_token_opens_its_sandbox_and_no_other() -> None:
    token = TOKENS.issue("sbx-1")
    assert TOKENS.opens(token, "sbx-1")
    assert not TOKENS.opens(token, "sbx-2")
    assert not TOKENS.opens(token[:-1], "sbx-1")
    assert not TOKENS.opens("", "sbx-1")
    assert not TOKENS.opens("é", "sbx-1")


def test_secrets_are_rotated() -> None:
    before = SandboxTokens(["second"]).issue("sbx-1")
    assert TOKENS.opens(before, "sbx-1")
    assert TOKENS.issue("sbx-1") != before
    assert not SandboxTokens(["first"]).opens(before, "sbx-1")


@pytest.mark.parametrize(("expires_at", "holds"), [(None, True), (1_000, True), (999, False)])
def test_a_signature_holds_until_its_second_is_over(expires_at: int | None, *, holds: bool) -> None:
    made = link(TOKENS.issue("sbx-1"), expires_at=expires_at)
    assert TOKENS.signs(made, "sbx-1")
    assert made.is_over(NOW) is not holds


@pytest.mark.parametrize(
    "changes",
    [{"path": "/b"}, {"operation": "write"}, {"username": ""}, {"expires_at": 2_000}],
)
def test_a_signature_is_for_what_it_says(changes: dict[str, object]) -> None:
    made = link(TOKENS.issue("sbx-1"))
    assert TOKENS.signs(made, "sbx-1")
    assert not TOKENS.signs(replace(made, **changes), "sbx-1")  # type: ignore[arg-type]
    assert not TOKENS.signs(made, "sbx-2")


def test_a_link_for_uploads_stands_for_its_account() -> None:
    links = UploadTokens(["first", "second"])
    made = links.issue("acc-1", "tpl-1/hash")
    assert links.account_of(made, "tpl-1/hash") == "acc-1"
    assert UploadTokens(["other", "first"]).account_of(made, "tpl-1/hash") == "acc-1"
    for forged in (made.replace("acc-1", "acc-2"), "", "acc-1.", "acc-1"):
        assert links.account_of(forged, "tpl-1/hash") is None
    assert links.account_of(made, "tpl-2/hash") is None

"""Secrets in files, read again while they are in use."""

from pathlib import Path

import pytest

from sandyard.kit.rotation import Secret
from sandyard.settings import Settings, load_settings
from sandyard.settings.secrets import USES

LONG, OTHER = "a-signing-key-that-is-long-enough-0001", "a-signing-key-that-is-long-enough-0002"


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the track's token; a new value is used at once."""
    return kept(tmp_path, monkeypatch, "BROKER_API_TOKEN", "old-token-of-the-tests")


def kept(folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, text: str) -> Path:
    file = folder / variable.lower()
    file.write_text(text + "\n")
    monkeypatch.setenv(variable, f"file:{file}")
    monkeypatch.setenv("SECRETS_REFRESH_SEC", "0.000001")
    return file


async def rotated(settings: Settings, setting: str, file: Path, text: str) -> Secret:
    secret = settings.secret(setting)
    file.write_text(text)
    await settings.secrets.refresh()
    await settings.secrets.refresh()
    return secret


async def test_a_new_token_is_accepted_beside_the_old_one(token: Path) -> None:
    secret = await rotated(load_settings(), "broker_api_token", token, "new-token-of-the-tests")
    assert list(secret) == ["new-token-of-the-tests", "old-token-of-the-tests"]


async def test_without_an_overlap_the_old_token_is_gone(
    token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRETS_OVERLAP_SEC", "0")
    secret = await rotated(load_settings(), "broker_api_token", token, "new-token-of-the-tests")
    assert list(secret) == ["new-token-of-the-tests"]


async def test_an_unknown_token_makes_it_read_the_secret_again(token: Path) -> None:
    secret = load_settings().secret("broker_api_token")
    token.write_text("new-token-of-the-tests")
    assert not secret.accepts(b"new-token-of-the-tests")
    assert await secret.accepts_newest(b"new-token-of-the-tests")
    assert not await secret.accepts_newest(b"wrong-token")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "can't be read: No such file"),
        ("", "BROKER_API_TOKEN: the value is empty"),
        ("admin-token-of-the-tests", "BROKER_API_TOKEN: must differ from BROKER_ADMIN_TOKEN"),
    ],
)
async def test_what_can_not_be_used_changes_nothing_and_is_told(
    token: Path,
    text: str | None,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("BROKER_ADMIN_TOKEN", "admin-token-of-the-tests")
    settings = load_settings()
    secret, _admin = settings.secret("broker_api_token"), settings.secret("broker_admin_token")
    token.unlink() if text is None else token.write_text(text)
    assert await settings.secrets.refresh() == {"broker_api_token": False}
    assert list(secret) == ["old-token-of-the-tests"]
    assert why in caplog.text
    assert "admin-token-of-the-tests" not in caplog.text


async def test_a_key_that_is_too_short_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = kept(tmp_path, monkeypatch, "JWT_SECRET", LONG)
    secret = await rotated(load_settings(), "jwt_secret", file, "short")
    assert list(secret) == [LONG]
    assert "JWT_SECRET: must have at least 32 characters" in caplog.text
    assert "short" not in caplog.text


@pytest.mark.parametrize("variable", ["SECRETS_KEY", "API_KEY_PEPPER"])
async def test_what_stored_data_rests_on_is_never_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("SECRETS_OVERLAP_SEC", "0")
    file = kept(tmp_path, monkeypatch, variable, LONG)
    secret = await rotated(load_settings(), variable.lower(), file, OTHER)
    assert list(secret) == [OTHER, LONG]


async def test_of_what_is_sent_only_the_newest_is_of_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = kept(tmp_path, monkeypatch, "DATABASE_PASSWORD", "one, with a comma")
    secret = await rotated(load_settings(), "database_password", file, "another, too")
    assert list(secret) == ["another, too"]


@pytest.mark.parametrize("setting", USES)
def test_a_secret_that_is_not_kept_elsewhere_is_what_the_environment_says(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = f"postgresql://{LONG}" if setting == "database_url" else LONG
    monkeypatch.setenv(setting.upper(), value)
    assert list(load_settings().secret(setting)) == [value]


def test_what_is_rotated_is_in_the_docs() -> None:
    page = Path("docs/secrets.md").read_text()
    assert all(f"`{setting.upper()}`" in page for setting in USES)

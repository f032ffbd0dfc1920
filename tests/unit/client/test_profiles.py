"""Where the client finds a server and credentials, and that nobody else can read them."""

from pathlib import Path

import pytest
from sandyard_client.connection import Connection
from sandyard_client.errors import ConfigurationError
from sandyard_client.profiles import list_profiles, read_profile, remove_profile, write_profile
from sandyard_client.wire import Credential


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("URL", "TOKEN", "ADMIN_TOKEN", "API_KEY", "DEVICE_KEY", "TELEMETRY_TOKEN"):
        monkeypatch.delenv(f"SANDYARD_{name}", raising=False)
    monkeypatch.delenv("SANDYARD_PROFILE", raising=False)
    path = tmp_path / "folder" / "config"
    monkeypatch.setenv("SANDYARD_CONFIG", str(path))
    return path


def test_a_profile_is_written_for_its_owner_alone(config: Path) -> None:
    write_profile("work", {"url": "https://a.example", "track_token": "50%; a=b"})
    write_profile("work", {"api_key": "sbk-1"})
    assert config.stat().st_mode & 0o777 == 0o600
    assert config.parent.stat().st_mode & 0o077 == 0
    assert read_profile("work") == {
        "url": "https://a.example",
        "track_token": "50%; a=b",
        "api_key": "sbk-1",
    }
    assert [path.name for path in config.parent.iterdir()] == ["config"]


def test_a_file_that_others_can_read_is_refused(config: Path) -> None:
    write_profile("default", {"api_key": "sbk-1"})
    config.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_profile()


def test_a_profile_that_is_asked_for_must_be_there(config: Path) -> None:
    assert read_profile() == {}
    with pytest.raises(ConfigurationError, match="no profile work"):
        read_profile("work")
    write_profile("work", {"url": "https://a.example"})
    assert list_profiles() == ["work"]
    assert remove_profile("work")
    assert not remove_profile("work")


def test_what_is_given_goes_before_the_environment_and_that_before_the_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_profile("default", {"url": "https://c.example/", "track_token": "c", "api_key": "sbk-c"})
    monkeypatch.setenv("SANDYARD_TOKEN", "b")
    found = Connection.load(api_key="sbk-a")
    assert (found.url, found.track_token, found.api_key) == ("https://c.example", "b", "sbk-a")
    assert "sbk-a" not in repr(found)


def test_each_call_gets_the_credential_that_it_needs() -> None:
    found = Connection(track_token="t", device_key="d", api_key="eyJhbGciOi")
    assert found.headers_for(Credential.TRACK) == {"Authorization": "Bearer t"}
    assert found.headers_for(Credential.DEVICE) == {"X-API-Key": "d"}
    assert found.headers_for(Credential.ACCOUNT) == {"Authorization": "Bearer eyJhbGciOi"}
    assert Connection(api_key="sbk-1").headers_for(Credential.ACCOUNT) == {"X-API-Key": "sbk-1"}
    with pytest.raises(ConfigurationError, match="SANDYARD_ADMIN_TOKEN"):
        found.headers_for(Credential.ADMIN)


def test_an_invalid_address_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="http://host:port"):
        Connection("localhost:8080")

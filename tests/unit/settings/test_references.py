"""Settings that name a file or a secret of AWS in place of their value."""

import json
from collections.abc import Iterator
from pathlib import Path

import boto3
import httpx
import pytest
from moto.server import ThreadedMotoServer

from sandyard.settings import SettingsError, load_settings


@pytest.fixture
def secrets_manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "eu-central-1",
    }.items():
        monkeypatch.setenv(name, value)
    httpx.post(f"http://{host}:{port}/moto-api/reset")
    yield
    server.stop()


def admin_token() -> str:
    found = load_settings().broker.broker_admin_token
    assert found is not None
    return found.get_secret_value()


def test_a_file_holds_the_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("token-from-a-file\n")
    monkeypatch.setenv("BROKER_ADMIN_TOKEN", f"file:{tmp_path / 'token'}")
    assert admin_token() == "token-from-a-file"


def test_any_setting_may_be_kept_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hours").write_text("2.5")
    monkeypatch.setenv("LAB_DURATION_HOURS", f"file:{tmp_path / 'hours'}")
    assert load_settings().broker.lab_duration_hours == 2.5


def test_a_file_that_is_missing_is_told_with_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_ADMIN_TOKEN", "file:/nowhere/token")
    monkeypatch.setenv("LAB_DURATION_HOURS", "soon")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    lines = caught.value.message.splitlines()
    assert lines[0] == (
        "BROKER_ADMIN_TOKEN: /nowhere/token can't be read: No such file or directory"
    )
    assert len(lines) == 1 or "LAB_DURATION_HOURS" in lines[1]


@pytest.mark.usefixtures("secrets_manager")
class TestSecretsManager:
    def test_a_secret_holds_the_value(self, monkeypatch: pytest.MonkeyPatch) -> None:
        boto3.client("secretsmanager").create_secret(
            Name="lab/admin", SecretString="hunter2-hunter2-"
        )
        monkeypatch.setenv("BROKER_ADMIN_TOKEN", "aws-secretsmanager:lab/admin")
        assert admin_token() == "hunter2-hunter2-"

    def test_one_key_of_a_secret(self, monkeypatch: pytest.MonkeyPatch) -> None:
        text = json.dumps({"admin": "token-number-one", "track": "two"})
        boto3.client("secretsmanager").create_secret(Name="lab", SecretString=text)
        monkeypatch.setenv("BROKER_ADMIN_TOKEN", "aws-secretsmanager:lab#admin")
        assert admin_token() == "token-number-one"

    async def test_the_value_before_the_last_rotation_holds_too(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = boto3.client("secretsmanager")
        client.create_secret(Name="lab/admin", SecretString="the-first-token-")
        for token in ("the-second-token", "the-third-token-"):
            client.put_secret_value(SecretId="lab/admin", SecretString=token)
        monkeypatch.setenv("BROKER_ADMIN_TOKEN", "aws-secretsmanager:lab/admin")
        settings = load_settings()
        secret = settings.secret("broker_admin_token")
        assert await settings.secrets.refresh() == {"broker_admin_token": True}
        assert list(secret) == ["the-second-token", "the-third-token-"], (
            "it signs when every replica may know it"
        )

    @pytest.mark.parametrize(
        ("reference", "why"),
        [
            ("aws-secretsmanager:missing", "the secret missing can't be read"),
            ("aws-secretsmanager:words#admin", "the secret is not JSON"),
            ("aws-secretsmanager:fields#other", "the secret fields has no key other"),
        ],
    )
    def test_an_unreadable_reference_is_reported_without_its_value(
        self, monkeypatch: pytest.MonkeyPatch, reference: str, why: str
    ) -> None:
        client = boto3.client("secretsmanager")
        for name, text in {"words": "hunter2", "fields": '{"admin": "hunter2"}'}.items():
            client.create_secret(Name=name, SecretString=text)
        monkeypatch.setenv("BROKER_ADMIN_TOKEN", reference)
        with pytest.raises(SettingsError, match=why) as caught:
            load_settings()
        assert "hunter2" not in caught.value.message

"""The Platform's settings: no default secret, and each mistake in a line that keeps the secret."""

import pytest

from sandyard.settings import SettingsError, load_settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JWT_SECRET", "short-secret"),
        ("JWT_SECRET", "l" * 40 + ",short-secret"),
        ("SMTP_URL", "http://short-secret@host"),
        ("SMTP_URL", "smtp://"),
        ("PUBLIC_URL", "example.com"),
        ("AUTH_RATE_LIMIT_PER_ACCOUNT", "often"),
        ("AUTH_RATE_LIMIT_PER_ADDRESS", "0"),
        ("LOGIN_HOURS", "0"),
        ("MAIL_FROM", "a\nb"),
        ("FAILED_LOGINS_PER_ACCOUNT", "10/never"),
        ("TRUSTED_PROXIES", "10.0.0.1/8"),
        ("TRUSTED_PROXIES", "10.0.0.0/8,proxy"),
        ("OIDC_ISSUER", "http://id.example.com"),
        ("OIDC_ISSUER", "id.example.com"),
        ("SANDBOX_DOMAIN", "192.0.2.7"),
        ("SANDBOX_DOMAIN", "http://192.0.2.7:8080"),
        ("SANDBOX_DOMAIN", "-box.example"),
    ],
)
def test_a_mistake_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as told:
        load_settings()
    assert told.value.message.startswith(f"{name}: ")
    assert "short-secret" not in told.value.message


def test_good_ones_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().platform.jwt_secret is None, "no default secret anywhere"
    for name, value in {
        "JWT_SECRET": f"{'a' * 32},{'b' * 32}",
        "SMTP_URL": "smtp+starttls://me:secret@mail.example.com:587",
        "PUBLIC_URL": "https://sandyard.example.com",
        "SANDBOX_DOMAIN": "https://1-boxes.example.net:8443",
        "AUTH_RATE_LIMIT_PER_ACCOUNT": "5/minute",
    }.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert "secret@" not in repr(settings)


def test_networks_of_proxies_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUSTED_PROXIES", "10.0.0.0/8, fd00::/8,192.0.2.7")
    networks = load_settings().server.proxy_networks
    assert [str(each) for each in networks] == ["10.0.0.0/8", "fd00::/8", "192.0.2.7/32"]

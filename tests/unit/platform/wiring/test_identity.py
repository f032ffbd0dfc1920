"""The identity provider is there if all of its settings are."""

import pytest

from sandyard.console.screens import login
from sandyard.platform.wiring.identity import CALLBACK, identity_provider
from sandyard.settings import SettingsError, load_settings
from tests.support.clocks import ManualClock

WHOLE = {
    "OIDC_ISSUER": "https://id.example.com",
    "OIDC_CLIENT_ID": "sandyard",
    "OIDC_CLIENT_SECRET": "a-secret",
}


def test_without_settings_there_is_none() -> None:
    assert identity_provider(load_settings(), ManualClock(0)) is None


@pytest.mark.parametrize("missing", WHOLE)
def test_what_is_missing_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WHOLE.items():
        monkeypatch.setenv(name, value)
    assert identity_provider(load_settings(), ManualClock(0)) is not None
    monkeypatch.delenv(missing)
    with pytest.raises(SettingsError) as told:
        identity_provider(load_settings(), ManualClock(0))
    assert told.value.message.startswith(f"{missing}: must be set with OIDC_")


def test_the_issuer_sends_browsers_to_a_page_that_there_is() -> None:
    assert login.OIDC_CALLBACK == CALLBACK

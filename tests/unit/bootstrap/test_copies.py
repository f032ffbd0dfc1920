"""What the settings of a copy leave out."""

from pathlib import Path

import pytest

from sandyard.bootstrap.copies import MARKER, within
from sandyard.settings import load_settings


def test_the_settings_of_a_copy_reach_nothing_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "CSP_BASE_URL": "https://csp.example.com",
        "EVENT_SINKS": "webhooks",
        "SMTP_URL": "smtp://mail.example.com",
        "SANDBOX_RUNTIME": "e2b",
        "PREVIEW_PROVIDER": "e2b",
        "E2B_API_KEY": "e2b_key",
    }.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert within(settings, tmp_path) is settings
    (tmp_path / MARKER).touch()
    copied = within(settings, tmp_path)
    assert copied.provider.csp_base_url is None
    assert copied.delivery.sinks == ()
    assert copied.platform.smtp_url is None
    assert copied.e2b.e2b_api_key is None
    assert (copied.sandboxes.sandbox_runtime, copied.previews.preview_provider) == (
        "local",
        "local",
    )

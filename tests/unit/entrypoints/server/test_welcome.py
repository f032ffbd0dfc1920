"""The banner's line about metrics, by where the server listens and what is set."""

from pathlib import Path

import pytest

from sandyard.entrypoints.server.data_dir import with_secrets
from sandyard.entrypoints.server.welcome import local_url, welcome
from sandyard.settings import load_settings

_EVERYWHERE = "0.0.0.0"  # noqa: S104
_BEARER = 'curl -H "Authorization: Bearer '


@pytest.mark.parametrize(
    ("host", "environment", "expected"),
    [
        ("127.0.0.1", {}, "curl http://127.0.0.1:8080/metrics"),
        (
            "127.0.0.1",
            {"METRICS_TOKEN": "abc"},
            _BEARER + '$METRICS_TOKEN" http://127.0.0.1:8080/metrics',
        ),
        (
            _EVERYWHERE,
            {"METRICS_TOKEN": "abc,def"},
            _BEARER + '${METRICS_TOKEN%%,*}" http://127.0.0.1:8080/metrics',
        ),
        (_EVERYWHERE, {"METRICS_PORT": "9100"}, "curl http://127.0.0.1:9100/metrics"),
        (
            _EVERYWHERE,
            {},
            "set METRICS_TOKEN or METRICS_PORT first: beyond loopback /metrics is closed without",
        ),
    ],
)
def test_the_line_about_metrics_works_or_says_what_is_missing(
    host: str,
    environment: dict[str, str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("METRICS_TOKEN", "METRICS_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"PARTS": "telemetry"} | environment).items():
        monkeypatch.setenv(name, value)
    settings = with_secrets(load_settings(), tmp_path)
    text = welcome(settings, (), url=local_url(host, 8080), host=host, data_dir=tmp_path)
    assert text.partition("See the metrics:\n")[2].strip() == expected

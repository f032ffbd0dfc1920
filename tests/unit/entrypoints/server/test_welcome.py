"""The banner's line about metrics, by where the server listens and what is set."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
            {"METRICS_TOKEN": "a" * 16},
            _BEARER + '$METRICS_TOKEN" http://127.0.0.1:8080/metrics',
        ),
        (
            _EVERYWHERE,
            {"METRICS_TOKEN": "a" * 16 + "," + "d" * 16},
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
    text = welcome(
        settings, (), troubles={}, url=local_url(host, 8080), host=host, data_dir=tmp_path
    )
    assert text.partition("See the metrics:\n")[2].strip().splitlines()[0] == expected


@pytest.mark.parametrize(
    ("troubles", "state", "last"),
    [
        ({}, "works, on SQLite in {}.", "Sandyard is ready: "),
        (
            {"telemetry": "Its disk is full."},
            "not ready, on SQLite in {}. Its disk is full.",
            "Sandyard is not ready yet: http://127.0.0.1:8080/readyz says why.",
        ),
    ],
)
def test_the_end_says_what_works_of_each_part(
    troubles: dict[str, str],
    state: str,
    last: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PARTS", "telemetry")
    settings = with_secrets(load_settings(), tmp_path)
    part: Any = SimpleNamespace(name="telemetry", engine="sqlite")
    url = "http://127.0.0.1:8080"
    text = welcome(
        settings, [part], troubles=troubles, url=url, host="127.0.0.1", data_dir=tmp_path
    )
    *_, shown, _, end = text.strip().splitlines()
    assert shown == f"  telemetry {state.format(tmp_path)}"
    assert end.startswith(last)


def test_each_limit_of_sandboxes_is_told_as_promised_or_advisory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARTS", "platform")
    monkeypatch.delenv("SANDBOX_CGROUP_ROOT", raising=False)
    settings = with_secrets(load_settings(), tmp_path)
    url = "http://127.0.0.1:8080"
    text = welcome(settings, (), troubles={}, url=url, host="127.0.0.1", data_dir=tmp_path)
    words = [line.split(maxsplit=4) for line in text.splitlines() if " in sandboxes: " in line]
    told = {label: promise.split(",")[0] for label, _, _, promise, *_ in words}
    assert told["memory"] == "advisory"
    assert told["cpu"] == told["processes"] == "promised"
    assert told["disk"] in ("promised", "advisory")

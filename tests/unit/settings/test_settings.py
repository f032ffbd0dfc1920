"""Settings: the seeds' names and defaults, each mistake in a line, every one in the docs."""

import re
from pathlib import Path

import pytest

from sandyard.settings import SettingsError, close_variables, describe, load_settings, tokens

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, _ in describe():
        monkeypatch.delenv(name, raising=False)


def test_the_defaults_are_the_documented_ones() -> None:
    settings = load_settings()
    assert settings.broker.lab_duration_hours == 4
    assert settings.broker.grace_period_minutes == 30
    assert settings.broker.sync_interval_sec == 600
    assert settings.broker.cleanup_interval_sec == 300
    assert settings.broker.deletion_retry_max_attempts == 3
    assert settings.provider.circuit_breaker_threshold == 5
    assert settings.provider.csp_timeout_read_sec == 5
    assert settings.broker.broker_api_token is None, "no default secret anywhere"


def test_every_mistake_is_a_line_that_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "LAB_DURATION_HOURS": "soon",
        "LOG_LEVEL": "LOUD",
        "CSP_BASE_URL": "ftp://x",
        "DATABASE_URL": "mysql://secret@host",
        "RATE_LIMIT_PER_TRACK": "often",
        "CIRCUIT_BREAKER_THRESHOLD": "0",
        "API_BASE_PATH": "v1",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as told:
        load_settings()
    lines = told.value.message.splitlines()
    assert sorted(line.split(":")[0] for line in lines) == [
        "API_BASE_PATH",
        "CIRCUIT_BREAKER_THRESHOLD",
        "CSP_BASE_URL",
        "DATABASE_URL",
        "LAB_DURATION_HOURS",
        "LOG_LEVEL",
        "RATE_LIMIT_PER_TRACK",
    ]
    assert "secret" not in told.value.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DDB_TABLE_NAME", "P1"),
        ("DDB_TABLE_NAME", "P" * 250),
        ("DDB_EVENTS_TABLE_NAME", "a/b"),
        ("DDB_GSI1_NAME", "a b"),
        ("AWS_REGION", "../x"),
        ("E2B_DOMAIN", "https://e2b.app"),
        *(
            (name, value)
            for name in ("DDB_ENDPOINT_URL", "CSP_BASE_URL", "PUBLIC_URL", "E2B_API_URL")
            for value in (
                "http://[::1",
                "http://host:99999",
                "http://host:x",
                "http://:80",
                "http://a b",
            )
        ),
    ],
)
def test_what_its_service_could_not_take_is_told_at_the_start(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=f"^{name}: must be "):
        load_settings()


@pytest.mark.parametrize("value", ["http://[::1]:8080/", "https://user@host/path", "http://h:80"])
def test_a_url_may_have_a_port_a_user_and_a_path(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CSP_BASE_URL", value)
    assert load_settings().provider.csp_base_url == value


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"PROBE_AT_CLAIM": "true"}, "PROBE_AT_CLAIM: needs PROBE"),
        (
            {"POOL_MIN_AVAILABLE": "3", "POOL_MAX_TOTAL": "2"},
            "POOL_MIN_AVAILABLE: must not exceed POOL_MAX_TOTAL",
        ),
    ],
)
def test_what_could_never_be_done_is_told_at_the_start(
    values: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=f"^{told}"):
        load_settings()
    monkeypatch.setenv("PROBE", "provider")
    monkeypatch.setenv("POOL_MAX_TOTAL", "3")
    load_settings()


def test_hours_and_minutes_take_decimals_and_empty_means_unset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAB_DURATION_HOURS", "0.25")
    monkeypatch.setenv("GRACE_PERIOD_MINUTES", "1.5")
    monkeypatch.setenv("CSP_BASE_URL", "")
    settings = load_settings()
    assert settings.broker.lab_duration_hours == 0.25
    assert settings.broker.grace_period_minutes == 1.5
    assert settings.provider.csp_base_url is None


def test_a_variable_takes_several_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_API_TOKEN", "tok-two-of-the-tests, tok-one-of-the-tests,")
    settings = load_settings()
    assert tokens(settings.broker.broker_api_token) == (
        "tok-two-of-the-tests",
        "tok-one-of-the-tests",
    )
    assert "tok-" not in repr(settings)


@pytest.mark.parametrize(
    "variable", ["BROKER_API_TOKEN", "BROKER_ADMIN_TOKEN", "TELEMETRY_ADMIN_TOKEN", "METRICS_TOKEN"]
)
def test_a_token_that_can_be_guessed_is_refused(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "long-enough-for-a-token, short")
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert refused.value.message == f"{variable}: must have at least 16 characters"


@pytest.mark.parametrize(
    "environment",
    [{"LAB_DURATION_HOURS": "48"}, {"LAB_DURATION_HOURS": "2", "LEASE_MAX_HOURS": "1"}],
)
def test_a_lease_may_last_at_least_as_long_as_a_lab(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert refused.value.message == "LEASE_MAX_HOURS: must not be less than LAB_DURATION_HOURS"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("LAB_DURATION_HOUR", "LAB_DURATION_HOURS"),
        ("DATABASE_URI", "DATABASE_URL"),
        ("SYNC_INTERVAL_SECONDS", "SYNC_INTERVAL_SEC"),
        ("E2B_APIKEY", "E2B_API_KEY"),
    ],
)
def test_a_variable_close_to_a_setting_is_found_with_it(name: str, meant: str) -> None:
    assert list(close_variables({name: "1", "PATH": "/bin"})) == [(name, meant)]


def test_settings_and_variables_of_others_are_not_taken_for_mistakes() -> None:
    others = (
        *("AWS_DEFAULT_REGION", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "SANDYARD_URL", "HOSTNAME"),
        *("DATA_DIR", "HOST", "PORT", "PROMETHEUS_MULTIPROC_DIR", "PYTHONPATH", "DATABASE_PORT"),
    )
    known = [name for name, _ in describe()]
    assert list(close_variables(dict.fromkeys((*known, *others), "1"))) == []


def test_the_docs_list_every_setting_with_its_default() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    rows = dict(re.findall(r"^\| `([A-Z0-9_]+)` \| (.*?) \|", text, re.MULTILINE))
    documented = {name: default.strip("`— ") for name, default in rows.items()}
    assert documented == dict(describe())


def test_every_setting_is_named_by_a_test_of_what_it_does() -> None:
    """Beside the tests that only read their values."""
    readers = {"test_settings.py", "test_values.py", "test_platform.py"}
    files = set((ROOT / "tests").rglob("*.py")) - {Path(__file__).with_name(x) for x in readers}
    named = {word.upper() for file in files for word in re.findall(r"\w+", file.read_text())}
    assert {name for name, _ in describe()} <= named


def test_the_docs_recommend_a_rate_for_tracks_which_have_none_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert load_settings().broker.rate_limit_per_track is None
    text = (ROOT / "docs" / "operations.md").read_text()
    [rate] = re.findall(r"`RATE_LIMIT_PER_TRACK` is off by default; we recommend `(.*?)`", text)
    monkeypatch.setenv("RATE_LIMIT_PER_TRACK", rate)
    assert load_settings().broker.rate_limit_per_track == rate

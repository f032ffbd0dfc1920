"""The command line: help with examples, exit codes, one line for a user's mistake."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import orjson
import pytest

from sandyard.settings import describe
from tests.support.servers.processes import csp_simulator, run_sandyard, sandyard_serve
from tests.support.servers.users import signed_up

COMMANDS = [[], ["jobs", "run"]]
"""Of two as processes; tests/unit/entrypoints/cli/test_help.py has them all."""

RECONCILED = ["adopted", "closed", "idle_stopped", "lost", "orphans_ended", "overdue", "recovered"]


def run(
    *arguments: str, environment: dict[str, str] | None = None, tmp_path: Path
) -> tuple[int, str, str]:
    log = tmp_path / "stderr"
    log.unlink(missing_ok=True)
    process = run_sandyard(*arguments, environment=environment, log=log)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output.decode(), log.read_text()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_examples(command: list[str], tmp_path: Path) -> None:
    code, output, _ = run(*command, "--help", tmp_path=tmp_path)
    assert code == 0
    assert "Examples:" in output
    assert "sandyard " in output


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nonsense"], 2, "No such command"),
        (["serve", "--port", "0"], 2, "--port"),
        (
            ["jobs", "run", "everything"],
            2,
            "Jobs: sync, cleanup, expiry, queue, reservations, holds, probe, pool, deliver",
        ),
        (["jobs", "run", "cleanup", "--force"], 2, "cleanup takes no --force"),
        (["serve", "--workers", "2"], 1, "DATABASE_URL"),
    ],
)
def test_a_mistake_is_told_on_stderr_without_a_traceback(
    arguments: list[str], code: int, words: str, tmp_path: Path
) -> None:
    environment = {"DATA_DIR": str(tmp_path / "data"), "CSP_BASE_URL": "http://127.0.0.1:9"}
    actual, _, errors = run(*arguments, environment=environment, tmp_path=tmp_path)
    assert actual == code
    assert words in errors
    assert len(errors.splitlines()) == 1
    assert "Traceback" not in errors


def test_wrong_settings_are_a_line_each(tmp_path: Path) -> None:
    environment = {"LAB_DURATION_HOURS": "x", "SYNC_INTERVAL_SEC": "-1"}
    code, _, errors = run("serve", environment=environment, tmp_path=tmp_path)
    assert code == 1
    assert [line.split(":")[1].strip() for line in errors.splitlines()] == [
        "LAB_DURATION_HOURS",
        "SYNC_INTERVAL_SEC",
    ]


def test_on_a_shared_engine_no_token_is_invented(tmp_path: Path) -> None:
    environment = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:9/x"}
    code, _, errors = run(
        "serve", "--data-dir", str(tmp_path / "d"), environment=environment, tmp_path=tmp_path
    )
    assert code == 1
    assert errors.splitlines() == [
        "sandyard: BROKER_API_TOKEN: must be set",
        "sandyard: BROKER_ADMIN_TOKEN: must be set",
        "sandyard: TELEMETRY_ADMIN_TOKEN: must be set",
        "sandyard: API_KEY_PEPPER: must be set",
        "sandyard: JWT_SECRET: must be set",
        "sandyard: GATEWAY_SECRET: must be set",
        "sandyard: SECRETS_KEY: must be set",
    ]


def test_settings_are_listed_with_their_source_and_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-token-that-is-in-a-file")
    generated = tmp_path / "d" / "secrets" / "api_key_pepper"
    generated.parent.mkdir(parents=True)
    generated.write_text("a-pepper-that-was-generated")
    environment = {
        "SYNC_INTERVAL_SEC": "30",
        "BROKER_API_TOKEN": f"file:{tmp_path / 'token'}",
        "BROKER_ADMIN_TOKEN": "a-token-in-the-environment",
        "RATE_LIMIT_STORAGE_URL": "async+redis://user:password@redis:6379",
        "SYNC_INTERVAL_SECS": "20",
    }
    code, output, errors = run(
        *("settings", "--changed", "-o", "json", "--data-dir", str(tmp_path / "d")),
        environment=environment,
        tmp_path=tmp_path,
    )
    assert code == 0, errors
    found = {row["setting"]: (row["value"], row["from"]) for row in orjson.loads(output)}
    assert found == {
        "DRAIN_SEC": ("0.1", "environment"),
        "SYNC_INTERVAL_SEC": ("30.0", "environment"),
        "BROKER_API_TOKEN": ("(hidden)", f"file:{tmp_path / 'token'}"),
        "BROKER_ADMIN_TOKEN": ("(hidden)", "environment"),
        "RATE_LIMIT_STORAGE_URL": ("async+redis://(hidden)@redis:6379", "environment"),
        "API_KEY_PEPPER": ("(hidden)", str(generated)),
    }
    assert errors == "SYNC_INTERVAL_SECS is not a setting. Did you mean SYNC_INTERVAL_SEC?\n"
    code, output, _ = run("settings", environment={}, tmp_path=tmp_path)
    listed = {line.split()[0] for line in output.splitlines()[1:]}
    assert (code, listed) == (0, {name for name, _ in describe()})


def test_tracks_and_operators_may_not_share_a_token(tmp_path: Path) -> None:
    environment = {"BROKER_API_TOKEN": f"{'a' * 16},{'b' * 16}", "BROKER_ADMIN_TOKEN": "b" * 16}
    code, _, errors = run(
        "serve", "--data-dir", str(tmp_path / "d"), environment=environment, tmp_path=tmp_path
    )
    assert code == 1
    assert "BROKER_ADMIN_TOKEN: must differ" in errors


def test_jobs_run_once_and_print_their_counts(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with csp_simulator(tmp_path, "--count", "12") as provider:
        environment = {"CSP_BASE_URL": provider}
        for job, expected in (
            ("sync", {"listed": 12, "added": 12}),
            ("sync", {"listed": 12, "added": 0, "unchanged": 12}),
            ("cleanup", {"deleted": 0}),
            ("expiry", {"expired": 0}),
        ):
            code, output, errors = run(
                *("jobs", "run", job, "--data-dir", data),
                environment=environment,
                tmp_path=tmp_path,
            )
            assert code == 0, errors
            assert expected.items() <= orjson.loads(output).items()


def test_every_part_has_its_jobs_run_and_those_of_a_node_by_their_plain_name(
    tmp_path: Path,
) -> None:
    for job, expected in (
        ("retention", {"readings_removed": 0, "markers_removed": 0}),
        (
            "reconcile",
            dict.fromkeys(RECONCILED, 0),
        ),
        ("end-previews", {"ended": 0, "removed": 0, "settled": 0, "failed": 0}),
        ("previews-events", {"events_removed": 0}),
        ("previews", {"cleared": 0, "ended": 0}),
    ):
        command = ("jobs", "run", job, "--data-dir", str(tmp_path / "data"))
        code, output, errors = run(*command, tmp_path=tmp_path)
        assert code == 0, errors
        assert orjson.loads(output) == expected


def test_a_job_that_the_engine_does_itself_is_refused_without_calling_the_engine(
    tmp_path: Path,
) -> None:
    environment = {"TELEMETRY_STORE": "dynamodb", "DDB_ENDPOINT_URL": "http://127.0.0.1:9"}
    code, _, errors = run(
        *("jobs", "run", "retention", "--data-dir", str(tmp_path / "data")),
        environment=environment,
        tmp_path=tmp_path,
    )
    assert code == 2
    assert "DynamoDB removes expired readings by itself; no job is needed." in errors


def test_a_job_without_its_provider_fails_in_one_line(tmp_path: Path) -> None:
    environment = {"CSP_BASE_URL": "http://127.0.0.1:9", "BACKOFF_BASE_MS": "1"}
    code, _, errors = run(
        *("jobs", "run", "sync", "--data-dir", str(tmp_path / "data")),
        environment=environment | {"LOG_LEVEL": "ERROR"},
        tmp_path=tmp_path,
    )
    assert code == 1
    assert errors.startswith("sandyard: The cloud provider fails or does not respond")
    assert errors.count("\n") == 1


def test_jobs_one_after_another_open_the_circuit_and_then_ask_nobody(tmp_path: Path) -> None:
    with csp_simulator(tmp_path) as url:
        httpx.patch(f"{url}/_sim", json={"outage": "error"}, timeout=60).raise_for_status()
        told = [run_sync(url, tmp_path) for _ in range(3)]
        asked = httpx.get(f"{url}/_sim", timeout=60).json()["calls"]["list"]
    assert ["failed too often" in each for each in told] == [False, False, True]
    assert asked == 2


def run_sync(url: str, tmp_path: Path) -> str:
    """What a run that fails says."""
    environment = {
        "CSP_BASE_URL": url,
        "CSP_MAX_ATTEMPTS": "1",
        "CIRCUIT_BREAKER_THRESHOLD": "2",
        "LOG_LEVEL": "ERROR",
    }
    command = ("jobs", "run", "sync", "--data-dir", str(tmp_path / "data"))
    code, _, errors = run(*command, environment=environment, tmp_path=tmp_path)
    assert code == 1
    return errors


def test_a_job_on_a_data_dir_that_is_served_is_refused(tmp_path: Path) -> None:
    with sandyard_serve(tmp_path / "data") as server:
        code, _, errors = run(
            *("jobs", "run", "sync", "--data-dir", str(server.data_dir)), tmp_path=tmp_path
        )
    assert code == 1
    assert "Another process" in errors


def test_tables_without_credentials_are_a_line(tmp_path: Path) -> None:
    environment = {
        "HOME": str(tmp_path),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:9/nobody",
    }
    code, _, errors = run("tables", "create", environment=environment, tmp_path=tmp_path)
    assert code == 1
    assert errors.startswith("sandyard: No AWS credentials were found.")
    assert errors.count("\n") == 1


def test_the_old_columns_of_previews_are_migrated_and_brought_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with sandyard_serve(data) as server:
        ann = signed_up(server, "ann", mail=1)
        project = ann.call("POST", "/projects", {"name": "site"}, expect=201)["project_id"]
        body = {"files": [{"path": "index.html", "content": "x"}]}
        ann.call("PUT", f"/projects/{project}/files", body)
    old = ("sbx-old", "https://old.example.com")

    def sql(statement: str) -> list[tuple[str, ...]]:
        with closing(sqlite3.connect(data / "previews.db")) as database, database:
            return database.execute(statement).fetchall()

    def migrate(step: str) -> tuple[int, str]:
        command = ("previews", "migrate", step, "--data-dir", str(data))
        code, output, log = run(*command, tmp_path=tmp_path)
        return code, output + log

    assert migrate("rollback")[0] == 0  # a new database has no old columns
    sql(f"UPDATE previews SET sandbox_id = '{old[0]}', preview_url = '{old[1]}'")  # noqa: S608 - ours
    code, told = migrate("finish")
    assert (code, "2 differences" in told) == (1, True)
    assert migrate("validate")[0] == 1
    assert migrate("run") == (0, "1 projects, 1 changed\n")
    assert migrate("run") == (0, "1 projects, 0 changed\n")
    assert migrate("validate")[0] == 0
    assert migrate("finish")[0] == 0
    assert migrate("run")[0] == 1
    assert migrate("rollback")[0] == 0
    assert sql("SELECT sandbox_id, preview_url FROM previews") == [old]


def test_a_migration_where_no_previews_are_makes_none(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    command = ("previews", "migrate", "run", "--data-dir", str(nowhere))
    code, _, log = run(*command, tmp_path=tmp_path)
    assert (code, nowhere.exists()) == (1, False)
    assert "There are no previews" in log


def test_the_module_is_the_console_script() -> None:
    script = Path(sys.executable).with_name("sandyard")
    output = subprocess.run([script, "--version"], capture_output=True, check=True, text=True)
    assert output.stdout.startswith("sandyard, version ")

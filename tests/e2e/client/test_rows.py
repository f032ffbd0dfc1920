"""Commands that are rows, against a real server: what they show, make once, and refuse."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client.lossy_proxy import LossyProxy
from tests.e2e.client.restarting import RestartingServer
from tests.e2e.client.terminals import CommandLine
from tests.support.servers.users import Person, signed_up

PARTS = "broker,telemetry,platform,previews"


@pytest.fixture(scope="module")
def ann(backend: RestartingServer) -> Person:
    return signed_up(backend.process, "ann", mail=1)


@pytest.fixture(scope="module")
def api_key(ann: Person) -> str:
    return str(ann.call("POST", "/api-keys", {"name": "rows"}, expect=201)["api_key"])


@pytest.fixture
def sandyard(
    proxy: LossyProxy,
    api_key: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> CommandLine:
    environment = {
        "SANDYARD_URL": proxy.url,
        "SANDYARD_ADMIN_TOKEN": "admin-token-of-the-tests",
        "SANDYARD_TELEMETRY_TOKEN": "telemetry-token-of-the-tests",
        "SANDYARD_API_KEY": api_key,
        "SANDYARD_CONFIG": str(tmp_path / "config"),
    }
    return CommandLine(environment, capsys, monkeypatch)


def told(sandyard: CommandLine, *arguments: str) -> Any:
    return json.loads(sandyard(*arguments, "--json").out)


def test_a_project_by_its_name_from_create_to_rm(sandyard: CommandLine, tmp_path: Path) -> None:
    made = told(sandyard, "project", "create", "shop", "--description", "The web shop")
    assert told(sandyard, "project", "show", "shop") == made
    assert "shop" in sandyard("projects", "list", "--status", "active").out
    assert sandyard("project", "create", "shop", code=5).err.count("\n") == 1
    sandyard("project", "change", "shop", "--name", "store", "--description", "null")
    assert told(sandyard, "project", "show", "store")["description"] is None
    sandyard("project", "env", "set", "store", "TOKEN", "0fj39", "--secret")
    [variable] = told(sandyard, "project", "env", "ls", "store")
    assert (variable["name"], "0fj39" in json.dumps(variable)) == ("TOKEN", False)
    assert sandyard("project", "env", "rm", "store", "TOKEN").out == "removed TOKEN\n"
    (tmp_path / "site" / "deep").mkdir(parents=True)
    (tmp_path / "site" / "index.html").write_text("<h1>Hi</h1>")
    (tmp_path / "site" / "deep" / "a.bin").write_bytes(b"\xff\x00")
    sandyard("project", "push", "store", str(tmp_path / "site"))
    assert sorted(each["path"] for each in told(sandyard, "project", "files", "store")) == [
        "deep/a.bin",
        "index.html",
    ]
    sandyard("project", "archive", "store")
    assert told(sandyard, "project", "show", "store")["status"] == "archived"
    sandyard("project", "unarchive", "store")
    assert sandyard("project", "rm", "store").out == f"removed {made['project_id']}\n"
    missing = sandyard("project", "show", "store", code=3)
    assert missing.err == "Error: PROJECT_UNKNOWN: There is no project store.\n"


def test_what_is_made_with_a_lost_answer_is_made_once(
    sandyard: CommandLine, proxy: LossyProxy
) -> None:
    proxy.first(["drop", "refuse_late", "pass"], path="/projects")
    made = told(sandyard, "project", "create", "lost")
    proxy.calm()
    found = told(sandyard, "project", "ls", "--q", "lost")
    assert [each["project_id"] for each in found] == [made["project_id"]]
    first = told(sandyard, "project", "create", "twice", "--key", "by-hand")
    assert told(sandyard, "project", "create", "twice", "--key", "by-hand") == first
    other = sandyard("project", "create", "thrice", "--key", "by-hand", code=5)
    assert "another request" in other.err or "IDEMPOTENCY" in other.err or "key" in other.err
    proxy.first(["drop"], path=f"/projects/{first['project_id']}")
    assert sandyard("project", "rm", first["project_id"]).out.startswith("removed")


def test_a_key_goes_to_standard_output_once(
    sandyard: CommandLine, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = ("key", "create", "ci", "--scope", "run", "--expires", "90d", "--format", "e2b")
    assert "KEY_MAKES_NO_KEYS" in sandyard(*create, code=4).err
    login = ann.headers["Authorization"].removeprefix("Bearer ")
    monkeypatch.setenv("SANDYARD_API_KEY", login)
    made = sandyard(*create)
    assert made.out.startswith("e2b_")
    assert "shown only once" in made.err
    assert made.out.strip() not in sandyard("key", "ls", "-o", "wide").out
    sandyard("key", "deactivate", "ci")
    assert told(sandyard, "key", "show", "ci")["is_active"] is False
    sandyard("key", "rm", "ci")


def test_a_template_and_a_sandbox_with_its_settings(sandyard: CommandLine) -> None:
    sandyard("template", "create", "mine", "--language", "python")
    sandyard("template", "change", "mine", "--tags", "web", "--tags", "own")
    assert told(sandyard, "template", "show", "mine")["tags"] == ["web", "own"]
    sandyard("sandbox", "create", "my-box", "--template", "static", "--no-start")
    sandyard(
        *("sandbox", "change", "my-box", "--idle-stop-minutes", "15", "--network", "none"),
        *("--public-ports", "8000", "--public-ports", "9000", "--cpu-spec", "2"),
    )
    box = told(sandyard, "sandbox", "show", "my-box")
    assert (box["idle_stop_minutes"], box["network"], box["cpu_spec"]) == (15, "none", 2)
    assert box["public_ports"] == [8000, 9000]
    sandyard("sandbox", "change", "my-box", "--public-ports", "null")
    assert told(sandyard, "sandbox", "show", "my-box")["public_ports"] == []
    sandyard("sandbox", "env", "set", "my-box", "LEVEL", "7")
    assert [each["name"] for each in told(sandyard, "sandbox", "env", "ls", "my-box")] == ["LEVEL"]
    events = told(sandyard, "sandbox", "history", "my-box")
    assert {each["subject"] for each in events} == {box["sandbox_id"]}
    sandyard("sandbox", "rm", "my-box")
    sandyard("template", "rm", "mine")


def test_an_operator_holds_reserves_and_reads_the_pool(sandyard: CommandLine) -> None:
    [first, *_] = told(sandyard, "pool", "ls", "--status", "available", "--limit", "5")
    name = first["name"]
    held = told(sandyard, "pool", "hold", name, "--reason", "audit", "--until", "2d")
    assert (held["status"], held["status_reason"]) == ("held", "audit")
    assert told(sandyard, "pool", "stats")["held"] == 1
    assert "held" in sandyard("pool", "stats").out
    sandyard("pool", "restore", name)
    kinds = [each["kind"] for each in told(sandyard, "pool", "history", name)]
    assert kinds[:2] == ["sandbox.restored", "sandbox.held"]
    reserved = told(
        sandyard,
        *("reservations", "create", "2", "--track-prefix", "row-", "--to", "1h", "--key", "r1"),
    )
    found = told(sandyard, "reservations", "ls")
    assert [each["reservation_id"] for each in found] == [reserved["reservation_id"]]
    sandyard("reservations", "rm", reserved["reservation_id"])
    assert told(sandyard, "queue", "ls") == []
    assert "sync" in [each["name"] for each in told(sandyard, "jobs", "ls")]
    assert told(sandyard, "jobs", "start", "sync")["job"] == "sync"
    dry = told(sandyard, "pool", "bulk-hold", "--status", "stale", "--reason", "r",
               "--until", "1d", "--dry-run")  # fmt: skip
    assert dry["dry_run"] is True


def test_webhooks_and_device_keys(sandyard: CommandLine) -> None:
    secret = sandyard("webhooks", "create", "https://example.com/hook", "--kinds", "lease.*")
    [webhook] = told(sandyard, "webhooks", "ls")
    rotated = sandyard("webhooks", "rotate-secret", webhook["webhook_id"])
    assert secret.out != rotated.out
    changed = ("webhooks", "change", webhook["webhook_id"], "--is-enabled", "false")
    assert told(sandyard, *changed)["is_enabled"] is False
    assert sandyard("webhooks", "rm", webhook["webhook_id"]).out.startswith("removed whk-")
    sandyard("device", "key", "create", "--description", "greenhouse")
    [key] = told(sandyard, "device", "key", "ls")
    assert sandyard("device", "key", "revoke", key["key_id"]).out == f"revoked {key['key_id']}\n"


def test_bills_and_the_account_are_exported(sandyard: CommandLine, tmp_path: Path) -> None:
    assert next(csv.reader([sandyard("bills", "export").out]))[0]
    sandyard("account", "export", str(tmp_path / "account.json"))
    assert json.loads((tmp_path / "account.json").read_text())
    assert "sandboxes" in sandyard("bills", "quota").out
    assert told(sandyard, "account", "show")["username"] == "ann"
    assert sandyard("users", "ls", code=4).err.count("\n") == 1

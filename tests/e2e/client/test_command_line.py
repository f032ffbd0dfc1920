"""The commands for users, against a real server of all parts."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from sandyard_client import Client, Connection, Credential, Request

from sandyard.kit.free_ports import free_port
from tests.e2e.client.restarting import RestartingServer
from tests.e2e.client.terminals import PATIENCE_SEC, CommandLine, saved
from tests.support.servers.processes import clean_environment
from tests.support.servers.users import PASSWORD, Person, signed_up, until

PARTS = "broker,telemetry,platform,previews"
NAMES = ["sandbox-0001", "sandbox-0002"]


@pytest.fixture(scope="module")
def ann(backend: RestartingServer) -> Person:
    return signed_up(backend.process, "ann", mail=1)


@pytest.fixture(scope="module")
def keys(backend: RestartingServer, ann: Person) -> dict[str, str]:
    with Client(Connection(backend.url, telemetry_token="telemetry-token-of-the-tests")) as client:
        request = Request("POST", "/telemetry/v1/api-keys", Credential.TELEMETRY, json={})
        device_key = client.call(request)["api_key"]
    made = ann.call("POST", "/api-keys", {"name": "tests"}, expect=201)
    return {"SANDYARD_DEVICE_KEY": device_key, "SANDYARD_API_KEY": made["api_key"]}


@pytest.fixture
def sandyard(
    backend: RestartingServer,
    keys: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> CommandLine:
    environment = {
        "SANDYARD_URL": backend.url,
        "SANDYARD_TOKEN": "track-token-of-the-tests",
        "SANDYARD_ADMIN_TOKEN": "admin-token-of-the-tests",
        "SANDYARD_TELEMETRY_TOKEN": "telemetry-token-of-the-tests",
        "SANDYARD_CONFIG": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        **keys,
    }
    return CommandLine(environment, capsys, monkeypatch)


@pytest.fixture
def track() -> str:
    return f"cli-{uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def box(backend: RestartingServer, ann: Person) -> Iterator[str]:
    """The name of a running sandbox."""
    [template] = ann.call("GET", "/templates?visibility=official&q=static")["templates"]
    body = {"name": "cli-box", "template_id": template["template_id"]}
    sandbox_id = ann.call("POST", "/sandboxes", body, expect=201)["sandbox_id"]
    ann.call("POST", f"/sandboxes/{sandbox_id}/start")
    yield "cli-box"
    ann.call("DELETE", f"/sandboxes/{sandbox_id}")


def test_a_lease_is_taken_seen_extended_and_released(sandyard: CommandLine, track: str) -> None:
    lease = json.loads(sandyard("lease", "allocate", "--track", track, "-o", "json").out)
    again = sandyard("lease", "allocate", "--track", track, "--wait", "5").out
    assert lease["sandbox_id"] in again
    assert "EXPIRES" in again
    listed = json.loads(sandyard("lease", "list", "--track", track, "-o", "json").out)
    assert [row["sandbox_id"] for row in listed] == [lease["sandbox_id"]]
    assert "EXTERNAL ID" in sandyard("lease", "list", "-o", "wide").out
    arguments = ("lease", "extend", "--track", track, "--minutes", "5", "-o", "json")
    assert json.loads(sandyard(*arguments).out)["expires_at"] == lease["expires_at"] + 300
    assert lease["sandbox_id"] in sandyard("lease", "release", "--track", track).out
    sandyard("lease", "release", lease["sandbox_id"], "--track", track)
    repeated = sandyard("lease", "release", "--track", track)
    assert (repeated.out, "has no lease" in repeated.err) == ("", True)
    assert json.loads(sandyard("lease", "list", "--track", track, "-o", "json").out) == []
    history = json.loads(sandyard("lease", "history", "--track", track, "-o", "json").out)
    kinds = [event["kind"] for event in reversed(history)]
    assert kinds[:3] == ["lease.created", "lease.extended", "lease.ended"]


def test_a_lease_gets_another_sandbox(sandyard: CommandLine, track: str) -> None:
    lease = json.loads(sandyard("lease", "allocate", "--track", track, "-o", "json").out)
    replace = ("lease", "replace", "--track", track, "-o", "json")
    replaced = json.loads(sandyard(*replace, "--reason", "no network").out)
    assert replaced["sandbox_id"] != lease["sandbox_id"]
    assert replaced["expires_at"] == lease["expires_at"]
    assert json.loads(sandyard(*replace, lease["sandbox_id"]).out) == replaced
    assert replaced["sandbox_id"] in sandyard("lease", "release", "--track", track).out
    assert "NO_LEASE" in sandyard(*replace, code=3).err


def test_exit_codes_say_what_kind_of_failure_it_was(
    sandyard: CommandLine, track: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = ("lease", "allocate", "--track", track)
    assert "NO_SANDBOXES" in sandyard(*claim, "--name-prefix", "no-such-", code=6).err
    sandyard("lease", "extend", "--track", track, "--minutes", "5", code=3)
    sandyard("pool", "history", "no-such-sandbox", code=3)
    sandyard(*claim, "--wait", "soon", code=2)
    sandyard("lease", "allocate", "--track", "no blanks", code=2)
    sandyard("lease", "allocate", "--track", "grün", code=2)
    sandyard("lease", "extend", "--track", track, "--minutes", "5", "no-such-id", code=3)
    away = ("--url", f"http://127.0.0.1:{free_port()}", "--patience", "0.1")
    assert len(sandyard(*claim, *away, code=7).err.splitlines()) == 1
    monkeypatch.setenv("SANDYARD_TOKEN", "wröng")
    assert "`sandyard login`" in sandyard(*claim, code=4).err
    monkeypatch.setenv("SANDYARD_TOKEN", "two\nlines")
    assert "line breaks" in sandyard(*claim, code=2).err
    monkeypatch.delenv("SANDYARD_TOKEN")
    assert "sandyard login --token track" in sandyard(*claim, code=2).err


def test_who_waits_for_a_server_is_told_which_and_why(
    sandyard: CommandLine, track: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    away = ("--url", url, "--patience", "6")
    [waiting, failed] = sandyard(
        "lease", "allocate", "--track", track, *away, code=7
    ).err.splitlines()
    assert url in waiting
    assert "trying again" in waiting
    assert f"Connection refused ({url})" in failed


def test_a_lease_is_held_for_the_life_of_a_command(
    sandyard: CommandLine, backend: RestartingServer, track: str
) -> None:
    line = "echo $SANDBOX_ID $SANDYARD_TRACK; exit 7"
    with sandyard.started("lease", "exec", "--track", track, "--", "sh", "-c", line) as process:
        out, err = process.communicate(timeout=PATIENCE_SEC)
    assert (process.returncode, err) == (7, "")
    sandbox_id, told = out.split()
    assert told == track
    assert sandbox_id
    assert backend.leases_made(track) == 1
    assert backend.allocated(track) == []
    sandyard("lease", "exec", "--track", track, "--", "no-such-command", code=127)
    sandyard("lease", "exec", "--name-prefix", "no-such-", "--", "true", code=124)
    assert backend.leases_made(track) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_the_commands_and_the_lease_is_given_up_after_it(
    sandyard: CommandLine, backend: RestartingServer, track: str, number: signal.Signals
) -> None:
    line = f"trap 'echo caught; exit 9' {number.name[3:]}; echo ready; while :; do sleep 0.1; done"
    with sandyard.started("lease", "exec", "--track", track, "--", "sh", "-c", line) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert len(backend.allocated(track)) == 1
        process.send_signal(number)
        assert process.stdout.read() == "caught\n"
        assert process.wait(PATIENCE_SEC) == 9
    assert backend.allocated(track) == []


def test_who_is_interrupted_while_it_waits_leaves_the_queue(
    sandyard: CommandLine, backend: RestartingServer, track: str
) -> None:
    wish = ("--track", track, "--wait", "600", "--name-prefix", "no-such-")
    with sandyard.started("lease", "exec", *wish, "--", "true") as process:
        until(lambda: _tickets(backend, track, "created"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SEC) == 128 + signal.SIGTERM
    assert _tickets(backend, track, "dropped") == 1
    assert backend.leases_made(track) == 0


def _tickets(backend: RestartingServer, track: str, what: str) -> int:
    with Client(Connection(backend.url, admin_token="admin-token-of-the-tests")) as client:
        query = {"actor": f"track:{track}", "kind": f"ticket.{what}"}
        return len(
            client.call(Request("GET", "/v1/admin/events", Credential.ADMIN, query=query))["events"]
        )


def test_the_pool_is_watched_and_a_sandbox_taken_out_of_it(sandyard: CommandLine) -> None:
    with (
        sandyard.started("pool", "watch", "-o", "json", "--interval", "0.2") as watching,
        sandyard.started("events", "tail", "--part", "broker", "--interval", "0.2") as tailing,
    ):
        assert watching.stdout is not None
        assert tailing.stdout is not None
        before = json.loads(watching.stdout.readline())
        shown = sandyard("pool", "quarantine", "sandbox-0025", "--reason", "no network").out
        assert "stale" in shown
        while (after := json.loads(watching.stdout.readline()))["stale"] == before["stale"]:
            pass
        assert after["total"] == before["total"]
        while "sandbox.quarantined" not in (line := tailing.stdout.readline()):
            assert line
        assert line.rstrip().endswith("by operator because no network")
        for process in (watching, tailing):
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_SEC) == 130
    history = json.loads(sandyard("pool", "history", "sandbox-0025", "-o", "json").out)
    assert [event["kind"] for event in history] == ["sandbox.quarantined", "sandbox.discovered"]


def test_the_pool_is_seen_live_on_a_terminal(sandyard: CommandLine) -> None:
    with sandyard.on_terminal("pool", "watch", "--interval", "0.2") as screen:
        screen.until("pending deletion")
        screen.until(" by ")
        screen.process.send_signal(signal.SIGINT)
        assert screen.to_end() == 130


def test_a_device_sends_and_is_seen(
    sandyard: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = "AA:BB:CC:00:00:01"
    about = (device, "--firmware", "1.0")
    assert "confirmation" in sandyard("device", "register", *about, "-o", "json").out
    away = ("--url", f"http://127.0.0.1:{free_port()}", "--patience", "0.1")
    waiting = sandyard("device", "send", *about, "--sensor", "temp_c=21.5", *away, code=7)
    assert "1 waiting" in waiting.out
    now_ms = time.time_ns() // 1_000_000
    lines = [{"timestamp_ms": now_ms + n, "sensors": {"temp_c": n}} for n in range(3)]
    file = saved(tmp_path / "readings.jsonl", "\n".join(json.dumps(line) for line in lines))
    assert "4 stored, 0 waiting" in sandyard("device", "send", *about, "--file", str(file)).out
    sandyard("device", "send", *about, "--sensor", "temp_c=warm", code=2)
    assert json.loads(sandyard("device", "send", *about, "-o", "json").out)["waiting"] == 0
    broken = ("--buffer", str(saved(tmp_path / "broken.db", "no database" * 100)))
    assert "broken.db" in sandyard("device", "send", *about, *broken, code=1).err
    monkeypatch.setenv("SANDYARD_DEVICE_KEY", "wrong")
    kept = ("--buffer", str(tmp_path / "kept.db"), "--sensor", "temp_c=1")
    assert "1 readings wait" in sandyard("device", "send", *about, *kept, code=4).err
    with sandyard.started("device", "tail", device, "--since", "5", "-o", "json") as tailing:
        assert tailing.stdout is not None
        told = [json.loads(tailing.stdout.readline())["sensors"]["temp_c"] for _ in range(4)]
        tailing.send_signal(signal.SIGINT)
        assert tailing.wait(PATIENCE_SEC) == 130
    assert sorted(told) == [0, 1, 2, 21.5]
    output = tmp_path / "out.csv"
    sandyard("device", "export", device, str(output))
    assert len(output.read_text().splitlines()) == 5
    output = tmp_path / "out.parquet"
    sandyard("device", "export", device, str(output))
    assert pq.read_table(output).num_rows == 4


def test_a_login_is_stored_for_its_owner_alone(
    sandyard: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ann: Person
) -> None:
    for name in ("SANDYARD_URL", "SANDYARD_API_KEY", "SANDYARD_ADMIN_TOKEN"):
        monkeypatch.delenv(name)
    url = ("--url", ann.url)
    monkeypatch.setattr(sys, "stdin", io.StringIO("not the password\n"))
    sandyard("login", *url, "--username", "ann", "--password-stdin", code=4)
    assert not (tmp_path / "config").exists()
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{PASSWORD}\n"))
    sandyard("login", *url, "--username", "ann", "--password-stdin")
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{PASSWORD}\n"))
    sandyard("login", *url, "--username", "ann", "--password-stdin")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert "--username" in sandyard("login", code=2).err
    monkeypatch.setattr(sys, "stdin", io.StringIO("wrong\n"))
    sandyard("login", "--token", "admin", code=4)
    secrets = tmp_path / "data" / "secrets"
    secrets.mkdir(parents=True)
    (secrets / "broker_admin_token").write_text("admin-token-of-the-tests\n")
    sandyard("login", "--data-dir", str(secrets.parent))
    stored = (tmp_path / "config").read_text()
    assert "sbk-" in stored
    assert "admin_token = admin-token-of-the-tests" in stored
    assert (tmp_path / "config").stat().st_mode & 0o777 == 0o600
    sandyard("lease", "list")
    sandyard("usage")
    sandyard("usage", "--profile", "other", code=2)


def test_a_sandbox_is_used_from_its_making_to_its_end(
    sandyard: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = json.loads(
        sandyard(
            "sandbox", "create", "mine", "--template", "static", "--no-start", "-o", "json"
        ).out
    )
    assert made["status"] == "created"
    sandyard("sandbox", "create", "mine", "--template", "static", "--no-start", code=5)
    too_large = ("sandbox", "create", "large", "--template", "static", "--cpu", "99")
    assert "cpu_spec: " in sandyard(*too_large, code=2).err
    assert "running" in sandyard("sandbox", "start", "mine").out
    assert made["sandbox_id"] in sandyard("sandbox", "ls").out
    (tmp_path / "folder").mkdir()
    saved(tmp_path / "folder" / "file", "text")
    sandyard("sandbox", "cp", str(tmp_path / "folder"), "mine:/workspace/folder")
    sandyard("sandbox", "cp", "mine:folder/file", str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "text"
    sandyard("sandbox", "cp", str(tmp_path / "back"), "mine:")
    sandyard("sandbox", "cp", str(tmp_path / "back"), "mine:folder")
    sandyard("sandbox", "exec", "mine", "--", "ln", "-s", "/usr/bin/python3", "folder/python")
    sandyard("sandbox", "cp", "mine:folder", str(tmp_path / "copied"))
    typed = io.TextIOWrapper(io.BytesIO(b"piped\n"))
    monkeypatch.setattr(sys, "stdin", typed)
    sandyard("sandbox", "cp", "-", "mine:from-stdin")
    assert sandyard("sandbox", "cp", "mine:from-stdin", "-").out == "piped\n"
    assert "folder" in sandyard("sandbox", "cp", "mine:folder", "-", code=2).err
    assert "size_bytes   6\n" in sandyard("sandbox", "file", "show", "mine", "from-stdin").out
    sandyard("sandbox", "file", "mv", "mine", "from-stdin", "moved")
    assert sandyard("sandbox", "file", "rm", "mine", "moved").out == "removed moved\n"
    assert sorted(each.name for each in (tmp_path / "copied").iterdir()) == ["back", "file"]
    assert sandyard("sandbox", "exec", "mine", "--", "cat", "back").out == "text"
    assert "sandyard_token=" in sandyard("sandbox", "open", "--print", "mine").out
    until(lambda: sandyard("sandbox", "logs", "mine").out.strip())
    assert "stopped" in sandyard("sandbox", "stop", "mine").out
    runs = json.loads(sandyard("usage", "--runs", "-o", "json").out)
    assert made["sandbox_id"] in {run["sandbox_id"] for run in runs}
    assert re.search(r"\ntotal +\S+ +USD", sandyard("usage", "--by", "sandbox", "-o", "wide").out)
    assert "no-such" in sandyard("sandbox", "rm", "no-such", "mine", code=3).err
    assert made["sandbox_id"] not in sandyard("sandbox", "ls").out
    sandyard("sandbox", "rm", "mine", code=3)


def test_a_command_in_a_sandbox_is_as_one_here(sandyard: CommandLine, box: str) -> None:
    line = "echo out $LEVEL; echo err >&2; exit 3"
    run = ("sandbox", "exec", "--env", "LEVEL=7", box, "--", "sh", "-c", line)
    shown = sandyard(*run, code=3)
    assert (shown.out, shown.err) == ("out 7\n", "err\n")
    sandyard("sandbox", "exec", "no-such-box", "--", "true", code=125)
    every_byte = bytes(range(256)) * 300
    piped = subprocess.run(
        [sys.executable, "-m", "sandyard", "sandbox", "exec", "-i", box, "--", "cat"],
        env=clean_environment(sandyard.environment),
        input=every_byte,
        capture_output=True,
        timeout=PATIENCE_SEC,
        check=True,
    )
    assert piped.stdout == every_byte
    loop = "trap 'exit 9' INT; echo ready; while :; do sleep 0.1; done"
    with sandyard.started("sandbox", "exec", box, "--", "sh", "-c", loop) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SEC) == 9


def test_a_page_is_opened_in_a_browser_or_its_link_is_printed(
    sandyard: CommandLine, box: str, tmp_path: Path
) -> None:
    with sandyard.started("sandbox", "open", box, BROWSER="echo %s") as process:
        out, err = process.communicate(timeout=PATIENCE_SEC)
    assert (process.returncode, "sandyard_token=" in out, err) == (0, True, "")
    with sandyard.started("sandbox", "open", box, PATH=str(tmp_path)) as process:
        out, err = process.communicate(timeout=PATIENCE_SEC)
    assert (process.returncode, "sandyard_token=" in out) == (1, True)
    assert err == "Error: No browser could be opened. Open the link above.\n"


def test_what_needs_a_running_sandbox_says_that_it_is_not(
    sandyard: CommandLine, ann: Person
) -> None:
    create = ("sandbox", "create", "still", "--template", "static", "--no-start", "-o", "json")
    sandbox_id = json.loads(sandyard(*create).out)["sandbox_id"]
    assert "NOT_RUNNING" in sandyard("sandbox", "open", "still", "--print", code=5).err
    with sandyard.started("sandbox", "shell", "still") as process:
        _, err = process.communicate(timeout=PATIENCE_SEC)
    assert (process.returncode, "NOT_RUNNING" in err) == (125, True), err
    ann.call("PATCH", f"/sandboxes/{sandbox_id}", {"wake_on_request": True})
    assert "sandyard_token=" in sandyard("sandbox", "open", "still", "--print").out
    sandyard("sandbox", "rm", "still")


def test_listings_and_logs_are_followed(sandyard: CommandLine, box: str) -> None:
    fetch = "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/?followed')"
    with (
        sandyard.started("sandbox", "ls", "--watch", "-o", "json") as watching,
        sandyard.started("sandbox", "logs", "-f", box) as following,
    ):
        assert watching.stdout is not None
        assert following.stdout is not None
        before = json.loads(watching.stdout.readline())
        sandyard("sandbox", "create", "watched", "--template", "static", "--no-start")
        assert "watched" not in {each["name"] for each in before}
        while "watched" not in {each["name"] for each in json.loads(watching.stdout.readline())}:
            pass
        sandyard("sandbox", "exec", box, "--", "python3", "-c", fetch)
        while "followed" not in (line := following.stdout.readline()):
            assert line
        for process in (watching, following):
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_SEC) == 130
    sandyard("sandbox", "rm", "watched")


def test_a_terminal_in_a_sandbox_and_a_bar_on_a_transfer(
    sandyard: CommandLine, box: str, tmp_path: Path
) -> None:
    with sandyard.on_terminal("sandbox", "shell", box, "--command", "stty size; sh") as screen:
        screen.until("25 90")
        screen.type("echo $((6 * 7))\r")
        screen.until("42")
        screen.type("exit 4\r")
        assert screen.to_end() == 4
    file = tmp_path / "big.bin"
    file.write_bytes(os.urandom(1 << 22))
    with sandyard.on_terminal("sandbox", "cp", str(file), f"{box}:/workspace/big.bin") as screen:
        assert screen.to_end() == 0
    assert "up big.bin" in screen.text


def test_a_shell_completes_commands(sandyard: CommandLine) -> None:
    for shell in ("zsh", "fish"):
        assert "_SANDYARD_COMPLETE" in sandyard("completion", shell).out
    asked = {
        "_SANDYARD_COMPLETE": "zsh_complete",
        "COMP_WORDS": "sandyard lease a",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(
        ["sandyard"],
        executable=str(Path(sys.executable).parent / "sandyard"),
        env=clean_environment(sandyard.environment | asked),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
        check=True,
    )
    assert "allocate" in done.stdout

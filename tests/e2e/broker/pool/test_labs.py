"""The scripts of docs/labs.md, run as they stand against a server."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.support.servers.processes import ServerProcess, csp_simulator, sandyard_serve

PAGE = Path(__file__).parents[4] / "docs" / "labs.md"
AGENT = """#!/bin/bash
# What Instruqt has on its hosts: variables of one participant.
file="$AGENT_VARIABLES/$3"
case "$2" in
  set) printf '%s' "$4" > "$file" ;;
  get) cat "$file" 2>/dev/null ;;
esac
"""
LANGUAGES = ("bash", "python")


def scripts() -> dict[tuple[str, str], str]:
    """By language and name, which is the first word of each script's second line."""
    found = re.findall(
        r"^```(bash|python)\n(#!.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return {(language, re.findall(r"^# (\w+):", text, re.M)[0]): text for language, text in found}


@dataclass
class Host:
    """A participant's machine."""

    folder: Path
    url: str
    token: str
    participant: str = "p-1"

    def start(
        self, language: str, name: str, *arguments: str, **settings: str
    ) -> subprocess.Popen[str]:
        variables = self.folder / self.participant
        variables.mkdir(exist_ok=True)
        script = self.folder / f"{name}.{language}"
        script.write_text(scripts()[language, name])
        program = "bash" if language == "bash" else sys.executable
        environment = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "SANDYARD_URL": self.url,
            "SANDYARD_TOKEN": self.token,
            "INSTRUQT_PARTICIPANT_ID": self.participant,
            "AGENT_VARIABLES": str(variables),
        }
        return subprocess.Popen(
            [program, str(script), *arguments],
            env=environment | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, language: str, name: str, *arguments: str, **settings: str) -> tuple[int, str]:
        process = self.start(language, name, *arguments, **settings)
        output, errors = process.communicate(timeout=90)
        return process.returncode, output + errors

    def variable(self, name: str) -> str:
        return (self.folder / self.participant / name).read_text()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, str]]:
    folder = tmp_path_factory.mktemp("labs")
    with csp_simulator(folder, "--count", "9") as provider:
        settings = {"PARTS": "broker", "CSP_BASE_URL": provider, "QUEUE_INTERVAL_SEC": "1"}
        with sandyard_serve(folder / "data", environment=settings) as server:
            httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=30)
            yield server, provider


@pytest.fixture
def host(lab: tuple[ServerProcess, str], tmp_path: Path) -> Host:
    agent = tmp_path / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    server, _ = lab
    return Host(tmp_path, server.url, server.track_token, f"p-{tmp_path.name}"[:60])


def row(server: ServerProcess, sandbox_id: str) -> dict[str, object]:
    found = httpx.get(
        f"{server.url}/v1/admin/sandboxes/{sandbox_id}", headers=server.admin, timeout=60
    )
    answer: dict[str, object] = found.json()
    return answer


@pytest.mark.parametrize("language", LANGUAGES)
def test_from_set_up_to_clean_up(lab: tuple[ServerProcess, str], host: Host, language: str) -> None:
    server, _ = lab
    code, output = host.run(language, "setup", SANDYARD_LAB_MINUTES="45", INSTRUQT_TRACK_SLUG="dns")
    assert code == 0, output
    sandbox_id = host.variable("SANDBOX_ID")
    leased = row(server, sandbox_id)
    assert leased["status"] == "allocated"
    assert leased["allocated_to_track"] == host.participant
    assert leased["track_name"] == "dns"
    assert leased["name"] == host.variable("SANDBOX_NAME")
    assert int(host.variable("SANDBOX_EXPIRES_AT")) == int(str(leased["allocated_at"])) + 45 * 60

    assert host.run(language, "setup")[0] == 0
    assert host.variable("SANDBOX_ID") == sandbox_id, "a second sandbox for one participant"

    code, output = host.run("bash", "extend", "30")
    assert code == 0, output
    assert f'"expires_at":{int(host.variable("SANDBOX_EXPIRES_AT")) + 30 * 60}' in output

    for _ in range(2):
        code, output = host.run(language, "cleanup")
        assert code == 0, output
    assert row(server, sandbox_id)["status"] in ("pending_deletion", None)


def test_a_broken_sandbox_is_replaced_and_the_new_one_given_up(
    lab: tuple[ServerProcess, str], host: Host
) -> None:
    server, _ = lab
    assert host.run("bash", "setup")[0] == 0
    broken = host.variable("SANDBOX_ID")
    for _ in range(2):  # the second time it is the new one that is broken
        code, output = host.run("bash", "replace")
        assert code == 0, output
    assert row(server, broken)["status"] == "held"
    instead = row(server, host.variable("SANDBOX_ID"))
    assert instead["allocated_to_track"] == host.participant
    assert instead["name"] == host.variable("SANDBOX_NAME")
    assert str(instead["expires_at"]) == host.variable("SANDBOX_EXPIRES_AT")
    assert host.run("bash", "cleanup")[0] == 0
    assert row(server, host.variable("SANDBOX_ID"))["status"] in ("pending_deletion", None)
    code, output = host.run("bash", "replace")
    assert code == 1
    assert "TRANSITION_NOT_ALLOWED" in output or "NOT_FOUND" in output


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_set_up_waits_for_the_pool_to_grow(
    lab: tuple[ServerProcess, str], host: Host, language: str
) -> None:
    server, provider = lab
    taken = 0
    while True:  # nothing is left for the participant
        headers = server.track | {"X-Track-ID": f"{host.participant}-{taken}"}
        if httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=60).status_code == 409:
            break
        taken += 1

    def grow() -> None:
        httpx.post(f"{provider}/_sim/sandboxes", json={"count": 1}, timeout=60)
        httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=30)

    process = host.start(language, "setup")
    waiting = {"queue_waiting 1.0"}
    while not waiting & set(httpx.get(f"{server.url}/metrics", timeout=60).text.splitlines()):
        assert process.poll() is None, process.communicate()
    threading.Thread(target=grow).start()
    output, errors = process.communicate(timeout=90)
    assert process.returncode == 0, output + errors
    assert row(server, host.variable("SANDBOX_ID"))["allocated_to_track"] == host.participant


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_wrong_token_ends_at_once_and_an_empty_pool_in_time(
    lab: tuple[ServerProcess, str], host: Host, language: str
) -> None:
    host.token = "wrong"
    code, output = host.run(language, "setup")
    assert code == 1
    assert "401" in output
    assert "UNAUTHORIZED" in output
    host.url = "http://127.0.0.1:9"
    code, output = host.run(language, "setup", SANDYARD_WAIT_SEC="0")
    assert code == 1
    assert "No sandbox within 0 seconds" in output
    assert host.run(language, "cleanup")[0] == 0, "nothing was leased, so nothing is to be done"

"""The scripts of docs/labs.md, run as they stand against a server."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.servers.processes import (
    ServerProcess,
    clean_environment,
    csp_simulator,
    sandyard_serve,
)

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
        script = variables / f"{name}.{language}"  # learners of a class start at the same time
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


def lease_all(server: ServerProcess, host: Host) -> str:
    """Nothing is left for the participant; returns a prefix of tracks that have nothing."""
    leased = 0
    while True:
        headers = server.track | {"X-Track-ID": f"{host.participant}-{leased}"}
        if httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=60).status_code == 409:
            return "late-"
        leased += 1


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

    end = int(host.variable("SANDBOX_EXPIRES_AT"))
    code, output = host.run("bash", "extend", "30")
    assert code == 0, output
    assert int(host.variable("SANDBOX_EXPIRES_AT")) == end + 30 * 60
    assert row(server, sandbox_id)["expires_at"] == end + 30 * 60

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
    lease_all(server, host)

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
def test_a_set_up_waits_no_longer_than_it_may(
    lab: tuple[ServerProcess, str], host: Host, language: str
) -> None:
    began = time.monotonic()
    code, output = host.run(
        language, "setup", SANDYARD_WAIT_SEC="3", SANDYARD_TRACK_PREFIX=lease_all(lab[0], host)
    )
    assert code == 1
    assert "No sandbox within 3 seconds" in output
    assert time.monotonic() - began < 25, "30 seconds of waiting in the call"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_token_for_one_course_and_an_address_with_a_slash(
    lab: tuple[ServerProcess, str], host: Host, language: str
) -> None:
    server, provider = lab
    # The first ones are kept for those who gave up waiting just now.
    httpx.post(f"{provider}/_sim/sandboxes", json={"count": 6}, timeout=60)
    httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=30)
    host.token, host.url = course_token(server, f"dns-{language}"), f"{server.url}/"
    code, output = host.run(language, "setup")
    assert code == 1
    assert "TRACK_NOT_ALLOWED" in output
    prefix = {"SANDYARD_TRACK_PREFIX": "dns101-"}
    code, output = host.run(language, "setup", **prefix)
    assert code == 0, output
    leased = row(server, host.variable("SANDBOX_ID"))
    assert leased["allocated_to_track"] == f"dns101-{host.participant}"
    assert host.run("bash", "extend", "10", **prefix)[0] == 0
    code, output = host.run(language, "cleanup", **prefix)
    assert (code, output) == (0, "")
    assert row(server, host.variable("SANDBOX_ID"))["status"] in ("pending_deletion", None)


def course_token(server: ServerProcess, name: str) -> str:
    """Of a client that the page's line makes, pasted beside the data dir of the server."""
    [line] = re.findall(r"^sandyard clients create .*$", PAGE.read_text(), re.MULTILINE)
    done = subprocess.run(
        ["sh", "-c", line.replace("dns-101", name)],
        cwd=server.data_dir.parent,
        env=clean_environment(
            {"SANDYARD_URL": server.url, "SANDYARD_ADMIN_TOKEN": server.admin_token}
        )
        | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


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


def test_a_class_whose_sandboxes_an_operator_replaces_leaves_no_lease(
    lab: tuple[ServerProcess, str], host: Host
) -> None:
    server, provider = lab
    httpx.post(f"{provider}/_sim/sandboxes", json={"count": 6}, timeout=60)
    httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=30)
    course = {"name": "class-1", "scopes": ["allocate"], "track_prefix": "class1-"}
    made = httpx.post(
        f"{server.url}/v1/admin/clients", json=course, headers=server.admin, timeout=60
    )
    token, prefix = made.json()["token"], {"SANDYARD_TRACK_PREFIX": "class1-"}
    learners = [Host(host.folder, server.url, token, name) for name in ("ann", "bob", "cleo")]
    setups = [each.start("bash", "setup", **prefix) for each in learners]
    for each in setups:
        output, errors = each.communicate(timeout=90)
        assert each.returncode == 0, output + errors
    ann, bob, cleo = learners
    first = {each.participant: each.variable("SANDBOX_ID") for each in learners}
    assert len(set(first.values())) == 3

    for learner in (bob, cleo):
        replaced = httpx.post(
            f"{server.url}/v1/admin/sandboxes/{learner.variable('SANDBOX_ID')}/replace",
            json={"reason": "no network"},
            headers=server.admin | {"X-Operator": "dana"},
            timeout=60,
        )
        assert replaced.status_code == 200, replaced.text
    code, output = bob.run("bash", "extend", "10", **prefix)
    assert code == 0, output
    assert bob.variable("SANDBOX_ID") != first["bob"], "it knows the new one by now"

    for learner, language in ((ann, "bash"), (bob, "python"), (cleo, "bash")):
        assert learner.run(language, "cleanup", **prefix) == (0, "")
        rows = listed(server, f"sandboxes?track=class1-{learner.participant}")["sandboxes"]
        assert "allocated" not in {each["status"] for each in rows}
    events = listed(server, "events?track=class1-cleo")["events"]
    told = [(each["kind"], each["actor"]) for each in reversed(events)]
    assert told[0] == ("lease.created", "track:class1-cleo")
    assert ("lease.replaced", "operator:dana") in told
    assert ("lease.ended", "track:class1-cleo") in told
    assert row(server, first["cleo"])["status"] == "held", "for the operator to inspect"


def listed(server: ServerProcess, path: str) -> dict[str, Any]:
    answer = httpx.get(f"{server.url}/v1/admin/{path}", headers=server.admin, timeout=60)
    found: dict[str, Any] = answer.raise_for_status().json()
    return found

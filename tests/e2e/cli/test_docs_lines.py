"""The lines of the docs, pasted into a shell beside a running server."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest

from sandyard.kit.free_ports import free_port
from tests.support.platform.in_process import read_outbox
from tests.support.servers.processes import (
    ServerProcess,
    clean_environment,
    csp_simulator,
    sandyard_serve,
)
from tests.support.servers.users import signed_up, until

DOCS = Path(__file__).parents[3] / "docs"
SECRETS = {
    "broker_admin_token": "admin-token-of-the-tests",
    "telemetry_admin_token": "telemetry-token-of-the-tests",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """With its tokens where the first start writes them."""
    data = tmp_path_factory.mktemp("checkout") / "data"
    for name, token in SECRETS.items():
        (data / "secrets").mkdir(parents=True, exist_ok=True)
        (data / "secrets" / name).write_text(token)
    environment = {"PREVIEW_TTL_MINUTES": "1"}  # it outlives the server by no more
    with sandyard_serve(data, environment=environment) as running:
        yield running


def blocks(page: str, heading: str = "") -> list[str]:
    """The lines to paste below a heading, or of the whole page, block by block."""
    text = (DOCS / page).read_text()
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0] if heading else text
    return re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def paste(
    server: ServerProcess,
    *lines: str,
    folder: Path | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    """In the folder that the data dir is in, unless another is given."""
    here = "\n".join(lines).replace("localhost:8080", server.url)
    return subprocess.run(
        ["sh", "-c", here],
        cwd=folder or server.data_dir.parent,
        env=clean_environment(environment),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def test_a_first_lease_and_the_same_again(whole_server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "data" / "secrets").mkdir(parents=True)
    (tmp_path / "data" / "secrets" / "broker_api_token").write_text(whole_server.track_token)
    stats = f"{whole_server.url}/v1/admin/stats"
    until(lambda: httpx.get(stats, headers=whole_server.admin, timeout=60).json()["available"])
    lines, _ = blocks("../README.md", "A first lease")
    first, again = paste(whole_server, lines, folder=tmp_path).stdout.splitlines()
    assert (first[-4:], again[-4:]) == (" 201", " 200")
    assert first[:-4] == again[:-4]


def test_the_five_lines_for_a_device_work_and_can_be_repeated(server: ServerProcess) -> None:
    five_lines = blocks("devices.md", "In five lines")[0]
    for _ in range(2):
        done = paste(server, five_lines)
        assert '"rejected":[]' in done.stdout, done
        assert '"bme280_temp_c":22.5' in done.stdout, done


def test_the_platforms_curl_lines_and_the_preview_lines_work(server: ServerProcess) -> None:
    [platform] = blocks("platform.md", "Five minutes, by curl")
    [previews] = blocks("previews.md", "By curl")
    done = paste(server, platform, previews)
    assert (done.returncode, "no " in done.stderr) == (0, False), done
    assert "<h1>" in done.stdout.partition("</html>")[0], done
    assert "}{" not in done.stdout, "each answer begins a line"
    assert '"status":"stopped"' in done.stdout, done
    assert '"filesCount":1' in done.stdout, done
    assert '"status":"running"' in done.stdout, done
    assert done.stdout.endswith("<h1>Hello</h1>\n"), done


def test_the_docs_field_helper_fails_on_an_error_response(server: ServerProcess) -> None:
    [platform] = blocks("platform.md", "Five minutes, by curl")
    helper = platform.partition("\n\n")[0]
    done = paste(server, helper, 'curl -s "$P/me" | field email')
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith('no email: {"error":{"code":"LOGIN_REQUIRED"')


def test_a_provider_is_connected_as_its_page_says(tmp_path: Path) -> None:
    check = blocks("provider.md")[0]
    start, use = blocks("provider.md", "Start the server with it")
    port = free_port()
    with csp_simulator(tmp_path, "--count", "3", "--token", "sesame") as provider:

        def run(lines: str) -> "subprocess.Popen[str]":
            for text, actual in {
                "https://csp.example.com": provider,
                "CSP_API_TOKEN=…": "CSP_API_TOKEN=sesame",
                "sandyard serve": f"exec sandyard serve --port {port}",
                "localhost:8080": f"localhost:{port}",
            }.items():
                lines = lines.replace(text, actual)
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            return subprocess.Popen(
                ["sh", "-c", lines],
                cwd=tmp_path,
                env=clean_environment({}) | {"PATH": path},
                stdout=subprocess.PIPE,
                text=True,
            )

        assert run(check).communicate(timeout=60)[0].startswith("ok "), "the check passes"
        server = run(start)
        try:
            until(lambda: '"available":3' in run(use.splitlines()[0]).communicate(timeout=60)[0])
            assert "sandbox-000" in run(use).communicate(timeout=60)[0]
        finally:
            server.terminate()
            server.communicate(timeout=60)


def test_a_pool_is_emptied_for_another_provider(server: ServerProcess) -> None:
    names, *others = blocks("operations.md", "Runbook")
    [emptying] = [lines for lines in others if 'bulk-delete?status=stale"' in lines]
    done = paste(server, names, emptying)
    assert done.stdout.count('"status":"stale"') == 25, done
    assert '"deletion_failed":0,"total":0,' in done.stdout, done


def test_more_simulated_sandboxes_are_added(server: ServerProcess) -> None:
    _, adding = blocks("../README.md", "A first lease")
    address, start = r"http://127\.0\.0\.1:\d+/_sim\b", server.process.stdout
    assert start is not None
    shown = next(filter(None, (re.search(address, line.decode()) for line in start)))
    done = paste(server, re.sub(address, shown.group(), adding))
    assert '"added":50' in done.stdout, done


@pytest.fixture(scope="module")
def account(server: ServerProcess) -> dict[str, str]:
    """What connects the command line, as docs/cli.md names it."""
    bea = signed_up(server, "bea", mail=len(read_outbox(server.data_dir)) + 1)
    key = bea.call("POST", "/api-keys", {"name": "cli", "scope": "admin"}, expect=201)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"SANDYARD_URL": server.url, "SANDYARD_API_KEY": key["api_key"], "PATH": path}


def test_a_volume_is_made_written_and_read(server: ServerProcess, account: dict[str, str]) -> None:
    [lines] = blocks("volumes.md")
    done = paste(server, "set -e", lines, environment=account)
    assert (done.returncode, "models" in done.stdout) == (0, True), done


def test_a_secret_is_bound_to_a_host_and_its_placeholder_seen(
    server: ServerProcess, account: dict[str, str]
) -> None:
    [lines] = blocks("network.md", "Secrets bound to hosts")
    done = paste(server, "set -e", lines, environment=account)
    assert done.returncode == 0, done
    assert "sk-live" not in done.stdout, done
    *_, by_curl, by_command = done.stdout.split()
    assert by_curl.startswith("sandyard_secret_"), done
    assert by_command.startswith("sandyard_secret_"), done

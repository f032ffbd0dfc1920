"""The gateway of a real server: in a browser, over TLS, and its refusal to share a domain."""

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, sync_playwright

from sandyard.kit.free_ports import free_port
from tests.support.servers.processes import (
    ServerProcess,
    run_sandyard,
    sandyard_serve,
    wait_until_ready,
)
from tests.support.servers.sandbox_programs import tokens_path
from tests.support.servers.users import Person, signed_up

PLATFORM = {"PARTS": "platform"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("gateway")
    with sandyard_serve(folder / "data", environment=PLATFORM) as server:
        yield server


@pytest.fixture(scope="module")
def ann(server: ServerProcess) -> Person:
    return signed_up(server, "ann", mail=1)


def started(person: Person, name: str) -> dict[str, Any]:
    """A sandbox that serves the static template."""
    templates = person.call("GET", "/templates?visibility=official")["templates"]
    [static] = [each for each in templates if each["repository_url"] == "builtin:static"]
    body = {"name": name, "template_id": static["template_id"], "cpu_spec": 1, "memory_spec": 0.5}
    made = person.call("POST", "/sandboxes", body, expect=201)
    running: dict[str, Any] = person.call("POST", f"/sandboxes/{made['sandbox_id']}/start")
    return running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


def test_a_browser_opens_a_link_and_stays_in(ann: Person, browser: Browser) -> None:
    """On plain http: `*.localhost` is trustworthy to a browser, so the cookie is kept."""
    one, other = started(ann, "one"), started(ann, "other")
    context = browser.new_context()
    page = context.new_page()
    refused = page.goto(one["preview_url"])
    assert refused is not None
    assert refused.status == 404
    link = ann.call("POST", tokens_path(one["preview_url"]), {}, expect=201)["url"]
    opened = page.goto(link)
    assert opened is not None
    assert (opened.status, page.url) == (200, one["preview_url"])
    [cookie] = context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["secure"]) == ("__Host-sandyard", True, True)
    assert cookie["domain"] == urlsplit(one["preview_url"]).hostname
    reloaded = page.reload()
    assert reloaded is not None
    assert reloaded.status == 200
    assert page.evaluate("document.cookie") == ""

    # Its page can plant no cookie for the API's host, nor for the other sandbox's.
    page.evaluate("document.cookie = 'planted=1; Domain=localhost; Path=/'")
    assert [each["name"] for each in context.cookies()] == ["__Host-sandyard"]
    elsewhere = page.goto(other["preview_url"])
    assert elsewhere is not None
    assert elsewhere.status == 404
    context.close()


def test_curl_knows_the_host_without_any_name_server(ann: Person) -> None:
    running = started(ann, "curled")
    token = ann.call("POST", tokens_path(running["preview_url"]), {}, expect=201)["token"]
    command = ["curl", "-s", "-H", f"X-Access-Token: {token}", running["preview_url"]]
    assert "<html" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_request_wakes_it_if_its_owner_wants_that(ann: Person) -> None:
    running = started(ann, "sleeper")
    path = f"/sandboxes/{running['sandbox_id']}"
    ann.call("POST", f"{path}/stop")
    ann.call("PATCH", path, {"is_public": True})
    host = {"Host": urlsplit(running["preview_url"]).netloc}
    assert httpx.get(ann.url, headers=host, timeout=60).status_code == 502
    ann.call("PATCH", path, {"wake_on_request": True})
    assert httpx.get(ann.url, headers=host, timeout=30).status_code == 200
    assert ann.call("GET", path)["status"] == "running"
    [woken] = [
        each
        for each in ann.call("GET", f"{path}/history")["events"]
        if each["kind"] == "sandbox.starting" and each["actor"] == "system:gateway"
    ]
    assert woken


def test_a_server_does_not_start_if_sandboxes_share_the_apis_domain(tmp_path: Path) -> None:
    environment = PLATFORM | {
        "PUBLIC_URL": "https://sandyard.example.com",
        "SANDBOX_DOMAIN": "sandboxes.example.com",
    }
    log = tmp_path / "log"
    arguments = ("serve", "--port", str(free_port()), "--data-dir", str(tmp_path / "data"))
    process = run_sandyard(*arguments, environment=environment, log=log)
    process.communicate(timeout=60)
    assert process.returncode == 1
    [line] = log.read_text().splitlines()
    assert line.startswith("sandyard: SANDBOX_DOMAIN: sandboxes.example.com and sandyard.example")


def test_it_serves_https_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    names = "subjectAltName=DNS:localhost,DNS:*.localhost,IP:127.0.0.1"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", names),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    port = free_port()
    arguments = ("--tls-cert", str(certificate), "--tls-key", str(key), "--port", str(port))
    environment = PLATFORM | {"JWT_SECRET": "j" * 40, "GATEWAY_SECRET": "g" * 40}
    process = run_sandyard(
        *("serve", "--data-dir", str(tmp_path / "data"), *arguments),
        environment=environment,
        log=tmp_path / "log",
    )
    trusting = ssl.create_default_context(cafile=str(certificate))
    try:
        wait_until_ready(f"https://127.0.0.1:{port}", process, verify=trusting)
        host = f"3000-sbx-00000000000000000.localhost:{port}"
        url = f"https://127.0.0.1:{port}/"
        answer = httpx.get(url, headers={"Host": host}, verify=trusting, timeout=60)
        assert answer.json()["error"]["code"] == "ADDRESS_UNKNOWN"
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_half_sent_requests_of_strangers_block_nobody(ann: Person) -> None:
    """They never reach the program: not without the end of their headers, not without a token."""
    running = started(ann, "besieged")
    link = ann.call("POST", tokens_path(running["preview_url"]), {}, expect=201)
    host = urlsplit(running["preview_url"]).netloc
    head = f"POST / HTTP/1.1\r\nHost: {host}\r\n".encode()
    halves = (head, head + b"Content-Length: 100\r\n\r\nhalf of the body")
    with ExitStack() as stack:
        for number in range(500):
            connection = socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2])))
            stack.enter_context(connection).sendall(halves[number % 2])
        headers = {"Host": host, "X-Access-Token": link["token"]}
        page = httpx.get(ann.url, headers=headers, timeout=10)
    assert page.status_code == 200

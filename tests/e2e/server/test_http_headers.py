"""What every answer says to browsers, and which pages and metrics strangers get."""

import shutil
import socket
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import sync_playwright
from prometheus_client import CollectorRegistry

from sandyard.entrypoints.http.api import create_app
from sandyard.entrypoints.http.middleware import InFlight
from sandyard.entrypoints.server.listeners import is_loopback
from sandyard.settings import load_settings
from tests.support.servers.processes import ServerProcess, sandyard_serve

CHROMIUM_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    environment = {
        "METRICS_TOKEN": "metrics-token-of-the-tests,another-token-of-the-tests",
        "KEEP_ALIVE_SEC": "1",
    }
    data_dir = tmp_path_factory.mktemp("headers") / "data"
    with sandyard_serve(data_dir, environment=environment) as server:
        yield server


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/healthz"),
        ("GET", "/health"),
        ("HEAD", "/health"),
        ("GET", "/api/v1/me"),
        ("POST", "/api/v1/auth/login"),
        ("POST", "/v1/allocate"),
        ("GET", "/telemetry/v1/devices"),
        ("GET", "/nowhere"),
        ("PUT", "/healthz"),
        ("POST", "/docs-assets/favicon.png"),
        ("GET", "/openapi.json"),
    ],
)
def test_no_answer_is_guessed_framed_leaked_or_kept(
    server: ServerProcess, method: str, path: str
) -> None:
    answer = httpx.request(method, f"{server.url}{path}", timeout=60)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert answer.headers["X-Request-ID"]


@pytest.mark.parametrize("path", ["/previews/demo", "/docs-assets/swagger-ui.css"])
def test_pages_and_files_say_themselves_how_long_they_are_kept(
    server: ServerProcess, path: str
) -> None:
    answer = httpx.get(f"{server.url}{path}", timeout=60).raise_for_status()
    assert answer.headers.get_list("Cache-Control") == ["no-cache"]
    assert len(answer.headers.get_list("Content-Security-Policy")) == 1
    assert answer.headers.get_list("X-Content-Type-Options") == ["nosniff"]


def test_health_is_an_alias_of_healthz(server: ServerProcess) -> None:
    assert httpx.get(f"{server.url}/health", timeout=60).json() == {"status": "ok"}
    assert httpx.get(f"{server.url}/health?deep=1", timeout=60).status_code == 400


def test_a_connection_without_requests_is_closed(server: ServerProcess) -> None:
    address = httpx.URL(server.url)
    with socket.create_connection((address.host, address.port or 80), timeout=30) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        while connection.recv(65536):
            pass


def test_metrics_need_the_token_that_is_set(server: ServerProcess) -> None:
    url = f"{server.url}/metrics"
    for headers in (
        {},
        server.admin,
        {"Authorization": "Bearer metrics-token-of-the-tests,another-token-of-the-tests"},
    ):
        refused = httpx.get(url, headers=headers, timeout=60)
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "METRICS_TOKEN_REQUIRED"
        assert httpx.head(url, headers=headers).status_code == 401
    for token in ("metrics-token-of-the-tests", "another-token-of-the-tests"):
        answer = httpx.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=60)
        assert "request_latency_seconds" in answer.text


async def test_without_a_token_metrics_are_closed_beyond_loopback() -> None:
    for is_exposed, status in ((True, 401), (False, 200)):
        app = create_app(
            load_settings(),
            [],
            registry=CollectorRegistry(),
            in_flight=InFlight(),
            is_exposed=is_exposed,
        )
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            assert (await client.get("/metrics")).status_code == status
            assert (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_only_this_machine_reaches_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "sandyard.example.com", ""])  # noqa: S104
def test_an_address_beyond_loopback_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_the_docs_work_under_their_policy_in_chromium(server: ServerProcess) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=CHROMIUM_ARGUMENTS
        )
        page = browser.new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        answer = page.goto(f"{server.url}/docs")
        assert answer is not None
        policy = answer.headers["content-security-policy"]
        page.get_by_text("/v1/allocate", exact=True).first.wait_for(timeout=20_000)
        page.locator("#operations-operations-get_health .opblock-summary").first.click()
        page.get_by_role("button", name="Try it out").click()
        page.get_by_role("button", name="Execute").click()
        page.locator(".live-responses-table").get_by_text("ok").first.wait_for(timeout=20_000)
        browser.close()
    assert "script-src 'self' 'sha256-" in policy
    assert "unsafe-eval" not in policy
    assert [text for text in complaints if "Content Security Policy" in text] == []

"""The first five minutes with applications of one's own: what they need comes in, through the
operator's index and registry, and they are seen through the gateway.

All of it as from a second machine: the server is at another address, with TLS and a domain for
sandboxes, and nothing is reached by `localhost`. The operator's git server, index and registry
have certificates of a private authority, which sandboxes know by `SANDBOX_CA_FILE`.
"""

import io
import shutil
import ssl
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import sync_playwright
from websockets.sync.client import connect

from sandyard.kit.free_ports import free_port
from tests.support.runtime.git_server import TOKEN, GitServer, git_server
from tests.support.runtime.root_file_systems import small_root, tar
from tests.support.servers.certificates import Certificate, make_certificate
from tests.support.servers.processes import (
    ServerProcess,
    run_command,
    sandyard_serve,
)
from tests.support.servers.users import Person, signed_up, until
from tests.support.services.package_indexes import HOST as INDEX_HOST
from tests.support.services.package_indexes import (
    NETWORK,
    PackageIndex,
    downloaded_wheels,
    installed_packages,
    package_index,
)

_PAGE = b'web: exec python -m http.server "$PORT" --bind 127.0.0.1\n'
_PATIENCE_SEC = 150
_HOST = "127.0.0.3"
_DOMAIN = "boxes.test"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    addresses = [f"IP:{each}" for each in ("127.0.0.1", INDEX_HOST, _HOST)]
    # By a proxy npm looks for `localhost` in the certificate of an address.
    names = ("DNS:localhost", f"DNS:*.{_DOMAIN}")
    return make_certificate(tmp_path_factory.mktemp("certificate"), *addresses, *names)


@pytest.fixture(scope="module")
def git(tmp_path_factory: pytest.TempPathFactory, certificate: Certificate) -> Iterator[GitServer]:
    with git_server(tmp_path_factory.mktemp("git"), certificate) as server:
        yield server


@pytest.fixture(scope="module")
def index(certificate: Certificate) -> Iterator[PackageIndex]:
    wheels, packages = downloaded_wheels("flask"), installed_packages("vite@6")
    with package_index(wheels=wheels, packages=packages, certificate=certificate) as index:
        yield index


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory,
    git: GitServer,
    index: PackageIndex,
    certificate: Certificate,
) -> Iterator[ServerProcess]:
    port = free_port()
    environment = {
        "PARTS": "platform",
        "PUBLIC_URL": f"https://{_HOST}:{port}",
        "SANDBOX_DOMAIN": f"https://{_DOMAIN}:{port}",
        "SANDBOX_EGRESS_NETWORKS": NETWORK,
        "SANDBOX_PIP_INDEX_URL": index.pip_index_url,
        "SANDBOX_NPM_REGISTRY": index.npm_registry,
        "SANDBOX_GIT_NETWORKS": "127.0.0.1/32",
        "SANDBOX_CA_FILE": str(git.ca_file),
    }
    data_dir = tmp_path_factory.mktemp("fed") / "data"
    with sandyard_serve(
        data_dir, environment=environment, port=port, host=_HOST, certificate=certificate
    ) as server:
        yield server


@pytest.fixture(scope="module")
def ann(server: ServerProcess) -> Person:
    return signed_up(server, "ann", mail=1)


def made(person: Person, template_id: str, name: str, **fields: Any) -> dict[str, Any]:
    body = {"name": name, "template_id": template_id, **fields}
    sandbox: dict[str, Any] = person.call("POST", "/sandboxes", body, expect=201)
    return sandbox


def official(person: Person, name: str) -> str:
    found = person.call("GET", "/templates?visibility=official")["templates"]
    [template] = [each for each in found if each["name"] == name]
    return str(template["template_id"])


def started(person: Person, sandbox: dict[str, Any]) -> dict[str, Any]:
    """Running, however long its packages take."""
    path = f"{person.url}/api/v1/sandboxes/{sandbox['sandbox_id']}"
    answer = httpx.post(
        f"{path}/start", headers=person.headers, timeout=_PATIENCE_SEC, verify=person.verify
    )
    assert answer.status_code == 200, answer.text

    def running() -> Any:
        found = httpx.get(path, headers=person.headers, verify=person.verify, timeout=60).json()
        assert found["status"] in ("starting", "running"), found["status_reason"]
        return found if found["status"] == "running" else None

    shown: dict[str, Any] = until(running, within_sec=_PATIENCE_SEC)
    return shown


def stopped(person: Person, sandbox: dict[str, Any]) -> None:
    person.call("DELETE", f"/sandboxes/{sandbox['sandbox_id']}")


def write(person: Person, sandbox: dict[str, Any], path: str, content: str) -> None:
    url = f"{person.url}/api/v1/sandboxes/{sandbox['sandbox_id']}/files"
    answer = httpx.put(
        url,
        params={"path": path},
        content=content,
        headers=person.headers,
        verify=person.verify,
        timeout=60,
    )
    assert answer.is_success, answer.text


def said(person: Person, sandbox: dict[str, Any], command: str) -> str:
    """What the command prints in the sandbox."""
    path = f"/sandboxes/{sandbox['sandbox_id']}/commands"
    done = person.call("POST", path, {"command": command}, expect=201)
    return str(done["result"]["stdout"])


def link_to(person: Person, sandbox: dict[str, Any]) -> dict[str, str]:
    path = f"/sandboxes/{sandbox['sandbox_id']}/tokens"
    found: dict[str, str] = person.call("POST", path, {}, expect=201)
    return found


def page_of(person: Person, running: dict[str, Any]) -> str:
    """As curl shows it, through the gateway."""
    headers = {"X-Access-Token": link_to(person, running)["token"]}
    host = running["preview_url"].split("/")[2]
    try:
        answer = httpx.get(
            f"{person.url}/", headers={**headers, "Host": host}, timeout=20, verify=person.verify
        )
    except httpx.TransportError:
        return ""
    return answer.text


def test_a_flask_application_is_installed_served_and_loaded_anew(
    ann: Person, index: PackageIndex
) -> None:
    sandbox = made(ann, official(ann, "flask"), "flask")
    assert sandbox["network"] == "packages"
    running = started(ann, sandbox)
    assert "Hello from Flask" in page_of(ann, running)
    assert any("/simple/flask/" in path for path in index.asked)
    app = "from flask import Flask\napp = Flask(__name__)\n@app.get('/')\ndef two(): return 'Two'\n"
    write(ann, sandbox, "app.py", app)
    until(lambda: page_of(ann, running) == "Two")
    report = ann.call("GET", f"/sandboxes/{sandbox['sandbox_id']}/egress")
    assert (report["network"], report["refused"]) == ("packages", 0)
    assert report["connections"] > 0
    stopped(ann, sandbox)


def test_a_vite_page_shows_a_change_without_being_loaded_again(ann: Person) -> None:
    """In Chromium, through the gateway, its WebSocket too."""
    sandbox = made(ann, official(ann, "vite"), "vite")
    running = started(ann, sandbox)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=[
                *("--no-sandbox", "--disable-gpu"),
                f"--host-resolver-rules=MAP *.{_DOMAIN} {_HOST}",
            ],
        )
        page = browser.new_page(ignore_https_errors=True)
        page.goto(link_to(ann, running)["url"])
        page.get_by_role("heading", name="Hello from Vite").wait_for(timeout=60_000)
        page.evaluate("window.loadedOnce = true")
        page.wait_for_timeout(500)  # for Vite's own connection
        write(ann, sandbox, "greeting.js", 'export const greeting = "Changed while you look";\n')
        page.get_by_role("heading", name="Changed while you look").wait_for(timeout=60_000)
        assert page.evaluate("window.loadedOnce")
        browser.close()
    stopped(ann, sandbox)


def test_a_private_repository_needs_its_secret(
    ann: Person, git: GitServer, server: ServerProcess
) -> None:
    url = git.add("secret-shop", {"web/Procfile": _PAGE, "web/index.html": b"the shop"})
    git.run("secret-shop", "git tag v1", "git rm --quiet -r web", "git commit --quiet -m gone")
    body = {
        "name": "shop",
        "category": "web",
        "language": "html",
        "repository_url": url,
        "repository_ref": "v1",
        "repository_folder": "web",
        "repository_secret": "SHOP_TOKEN",
    }
    template = ann.call("POST", "/templates", body, expect=201)
    sandbox = made(ann, template["template_id"], "shop")
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    refused = ann.call("POST", f"{path}/start", expect=409)
    assert refused["error"]["code"] == "CLONE_FAILED"
    ann.call("PUT", f"{path}/env/SHOP_TOKEN", {"value": TOKEN, "secret": True})
    running = started(ann, sandbox)
    assert page_of(ann, running) == "the shop"
    shown = said(ann, sandbox, "cat /workspace/.git/config")
    assert url in shown
    assert TOKEN not in shown + server.log.read_text() + str(ann.answers)
    # Started again from its own files, also when the template is gone.
    ann.call("POST", f"{path}/stop")
    ann.call("DELETE", f"/templates/{template['template_id']}", expect=204)
    assert page_of(ann, started(ann, sandbox)) == "the shop"
    stopped(ann, sandbox)


def test_a_bare_machine_has_python_and_is_told_what_was_blocked(ann: Person) -> None:
    sandbox = started(ann, made(ann, official(ann, "python"), "machine"))
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    assert said(ann, sandbox, "python --version").startswith("Python 3")
    curl = "curl -sS http://example.org/"
    assert said(ann, sandbox, curl) == "blocked: example.org (not in the package allow-list)\n"
    [refusal] = until(lambda: ann.call("GET", f"{path}/egress")["refusals"])
    assert (refusal["host"], refusal["port"], refusal["count"]) == ("example.org", 80, 1)
    changed = ann.call("PATCH", path, {"network": "none"})
    assert changed["network"] == "none"
    assert said(ann, sandbox, curl) == "blocked: example.org (this sandbox has no network)\n"
    stopped(ann, sandbox)


def test_files_commands_and_a_terminal_from_another_address(ann: Person) -> None:
    sandbox = started(ann, made(ann, official(ann, "python"), "visited"))
    path = f"{ann.url}/api/v1/sandboxes/{sandbox['sandbox_id']}"
    content = bytes(range(256)) * 4096
    with httpx.Client(headers=ann.headers, verify=ann.verify, timeout=60) as client:
        client.put(f"{path}/files?path=docs/up.bin", content=content).raise_for_status()
        assert said(ann, sandbox, "wc -c < docs/up.bin").strip() == str(len(content))
        assert client.get(f"{path}/files?path=docs/up.bin").content == content
        packed = client.get(f"{path}/files/tar?path=docs").content
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert [member.size for member in archive if member.isfile()] == [len(content)]
    assert isinstance(ann.verify, ssl.SSLContext)
    with connect(
        f"{path}/terminal".replace("https:", "wss:"),
        ssl=ann.verify,
        additional_headers=ann.headers,
        source_address=("127.0.0.4", 0),
        proxy=None,
    ) as terminal:
        terminal.send(b"echo $((6 * 7))-shown\n")
        shown = ""
        while "42-shown" not in shown:
            message = terminal.recv(timeout=60)
            shown += message.decode() if isinstance(message, bytes) else ""
    stopped(ann, sandbox)


def test_an_environment_is_imported_and_used_while_the_server_runs(
    ann: Person, server: ServerProcess, tmp_path: Path
) -> None:
    archive = tmp_path / "small.tar"
    archive.write_bytes(tar(*small_root()))

    def environments(*words: str) -> str:
        place = {"DATA_DIR": str(server.data_dir)}
        done = run_command("environments", *words, environment=place)
        return done.stdout + done.stderr

    body = {"name": "small", "category": "machine", "language": "sh", "environment": "small"}
    body |= {"repository_url": "builtin:python"}
    unknown = ann.call("POST", "/templates", body, expect=409)
    assert unknown["error"]["code"] == "ENVIRONMENT_UNKNOWN"
    assert environments("import", "small", str(archive)).startswith("small: ")
    template = ann.call("POST", "/templates", body, expect=201)
    sandbox = started(ann, made(ann, template["template_id"], "small"))
    assert sandbox["environment"] == "small"
    assert said(ann, sandbox, "ls /bin").split() == ["cat", "ls", "sh", "sleep"]
    assert "uses this environment" in environments("remove", "small")
    stopped(ann, sandbox)
    assert environments("remove", "small") == "small is removed\n"
    assert environments("list") == ""


@pytest.mark.torture
def test_a_fastapi_application_and_a_bare_node_machine(tmp_path: Path) -> None:
    wheels = downloaded_wheels("fastapi", "uvicorn")
    with package_index(wheels=wheels, packages={}) as index:
        environment = {
            "PARTS": "platform",
            "SANDBOX_EGRESS_NETWORKS": NETWORK,
            "SANDBOX_PIP_INDEX_URL": index.pip_index_url,
        }
        with sandyard_serve(tmp_path / "data", environment=environment) as server:
            bob = signed_up(server, "bob", mail=1)
            app = started(bob, made(bob, official(bob, "fastapi"), "fastapi"))
            assert "Hello from FastAPI" in page_of(bob, app)
            node = started(bob, made(bob, official(bob, "node"), "node"))
            assert said(bob, node, "node --print 1+1") == "2\n"
            stopped(bob, app)
            stopped(bob, node)

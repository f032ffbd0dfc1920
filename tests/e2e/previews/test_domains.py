"""A domain for a published project: proven by its token, and passed on by a proxy."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from sandyard.kit.free_ports import free_port
from tests.e2e.cli.test_docs_lines import DOCS
from tests.support.servers.own_names import OwnNames, with_own_names
from tests.support.servers.processes import (
    SECRETS,
    ServerProcess,
    clean_environment,
    wait_until_ready,
)
from tests.support.servers.users import Person, signed_up

HERE = "127.71.8.1"
"""Where the proxy listens: an address of the loopback that no other test has."""
DOMAIN = "shop.example.org"
SCHEMES = ("https", "http")
PROXY = """
daemon off; pid {folder}/nginx.pid; error_log stderr;
events {{}}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
  fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  {server}
}}
"""


@contextmanager
def running(command: list[str], **environment: str) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(command, env=clean_environment(environment)) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextmanager
def proxy(folder: Path, token: str, port: int) -> Iterator[None]:
    """nginx before the server, as the docs have it."""
    block = (DOCS / "previews.md").read_text().partition("```nginx\n")[2].partition("```")[0]
    for written, here in (
        ("443 ssl default_server", f"{HERE}:80"),
        ("TOKEN", token),
        ("127.0.0.1:8080", f"127.0.0.1:{port}"),
        ("sandboxes.example.net", "localhost"),
    ):
        assert written in block
        block = block.replace(written, here)
    text = PROXY.format(folder=folder, server=block)
    (folder / "nginx.conf").write_text(text)
    command = ["/usr/sbin/nginx", "-e", "stderr", "-p", str(folder), "-c"]
    with running([*command, str(folder / "nginx.conf")]) as process:
        wait_until_ready(f"http://{HERE}", process, "/.well-known/sandyard-domain")
        yield


@contextmanager
def server_with_names(folder: Path) -> Iterator[ServerProcess]:
    port, data = free_port(), folder / "data"
    command = [sys.executable, "-m", "sandyard", "serve", "--port", str(port)]
    chosen = {"PARTS": "platform,previews", "SANDBOX_EGRESS_NETWORKS": f"{HERE}/32"}
    with running([*command, "--data-dir", str(data)], **SECRETS, **chosen) as process:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(url, process)
        yield ServerProcess(process, url, data, folder / "log", "", "")


async def test_a_domain_shows_what_is_published_once_it_serves_the_token(tmp_path: Path) -> None:
    async def scenario(names: OwnNames) -> None:
        names.set({DOMAIN: HERE, "private.example.org": "127.71.8.2"})
        with server_with_names(tmp_path) as server:
            ann, bob = (
                signed_up(server, name, mail=mail) for mail, name in enumerate(("ann", "bob"), 1)
            )
            walk(server, ann, bob, tmp_path)

    await with_own_names(tmp_path, scenario)


def published(person: Person, text: str) -> str:
    [project] = person.call("GET", "/projects")["projects"]
    path = f"/projects/{project['project_id']}"
    person.call("PUT", f"{path}/files", {"files": [{"path": "index.html", "content": text}]})
    person.call("POST", f"{path}/publish", {})
    return f"{path}/publish"


def walk(server: ServerProcess, ann: Person, bob: Person, folder: Path) -> None:
    mine, other = published(ann, "Ann's shop"), published(bob, "Bob's")
    at = f"{mine}/domains/{DOMAIN}"
    unproven = ann.call("PUT", at, expect=409)["error"]
    assert unproven["code"] == "DOMAIN_UNPROVEN"
    told = unproven["details"]
    assert told["url"] == f"http://{DOMAIN}/.well-known/sandyard-domain"
    assert told["seen"][1].startswith("http: ClientConnectorError")
    guarded = ann.call("PUT", f"{mine}/domains/private.example.org", expect=409)["error"]
    assert guarded["details"]["seen"] == [f"{each}: its address is private" for each in SCHEMES]
    for refused in ("localhost", "a.localhost", "shop", "127.0.0.1", "Shop.example.org"):
        answer = ann.call("PUT", f"{mine}/domains/{refused}", expect=400)
        assert answer["error"]["code"] == "DOMAIN_REFUSED", refused

    port = int(server.url.rpartition(":")[2])
    with proxy(folder, told["token"], port):
        assert httpx.get(f"http://{DOMAIN}/").status_code == 404, "nobody's yet"
        stranger = bob.call("PUT", f"{other}/domains/{DOMAIN}", expect=409)["error"]
        assert stranger["code"] == "DOMAIN_UNPROVEN"
        assert stranger["details"]["token"] != told["token"]
        for _ in range(2):
            assert ann.call("PUT", at)["domains"] == [DOMAIN]
        assert httpx.get(f"http://{DOMAIN}/").text == "Ann's shop"
        published(ann, "Ann's new shop")
        assert httpx.get(f"http://{DOMAIN}/").text == "Ann's new shop"
        history = ann.call("GET", mine.replace("publish", "sandbox/history"))["events"]
        assert [each["data"]["domain"] for each in history if each["kind"] == "domain.added"] == [
            DOMAIN
        ]
        ann.call("DELETE", at, expect=204)
        assert httpx.get(f"http://{DOMAIN}/").status_code == 404
        ann.call("PUT", at)
        ann.call("DELETE", mine, expect=204)
        assert httpx.get(f"http://{DOMAIN}/").status_code == 404
        published(ann, "again")
        assert ann.call("GET", mine)["domains"] == [], "they ended with what was published"

    with proxy(folder, stranger["details"]["token"], port):
        bob.call("PUT", f"{other}/domains/{DOMAIN}")
        assert httpx.get(f"http://{DOMAIN}/").text == "Bob's"
    with proxy(folder, told["token"], port):
        taken = ann.call("PUT", at, expect=409)["error"]
        assert taken["code"] == "DOMAIN_TAKEN"

"""What is kept of sandboxes for others: snapshots, forks, builds of templates, notes with files.

Run with E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL set; it ends with 0 if all is well.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
from e2b import (
    ALL_TRAFFIC,
    BuildException,
    CommandExitException,
    NotFoundException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    Template,
    TemplateException,
    wait_for_port,
)


def main(*left_out: str) -> None:
    sandbox = Sandbox.create(timeout=120, envs={"COLOUR": "red"}, metadata={"kind": "kept"})
    try:
        for check in (snapshots, forks, notes, root, networks):
            if check.__name__ not in left_out:
                check(sandbox)
    finally:
        sandbox.kill()
    refused(SandboxNotFoundException, sandbox.fork)
    refused(SandboxNotFoundException, sandbox.create_snapshot)
    for check_alone in (builds, root_builds, refused_builds, traffic):
        if check_alone.__name__ not in left_out:
            check_alone()


def snapshots(sandbox: Sandbox) -> None:
    sandbox.files.write("state", "before")
    unnamed = sandbox.create_snapshot()
    sandbox.files.write("state", "after")
    other = Sandbox.create(unnamed.snapshot_id, timeout=60)
    assert other.files.read("state") == "before"
    other.files.write("state", "another's")
    assert sandbox.files.read("state") == "after"
    other.pause()
    assert other.connect().files.read("state") == "another's"
    other.kill()
    named = sandbox.create_snapshot("kept-state")
    assert named.names == ["kept-state"]
    pages = Sandbox.list_snapshots(sandbox_id=sandbox.sandbox_id, limit=1)
    found = [pages.next_items()[0].snapshot_id, pages.next_items()[0].snapshot_id]
    assert found == [named.snapshot_id, unnamed.snapshot_id]
    assert not pages.has_next
    assert Sandbox.delete_snapshot("kept-state") is True
    assert Sandbox.delete_snapshot("kept-state") is False
    assert Sandbox.delete_snapshot(unnamed.snapshot_id) is True
    refused(SandboxException, lambda: Sandbox.create(unnamed.snapshot_id))


def forks(sandbox: Sandbox) -> None:
    both: list[Any] = sandbox.fork(count=2, timeout=60)
    assert len({each.sandbox_id for each in both}) == 2
    for each in both:
        assert each.files.read("state") == "after"
        assert each.commands.run("echo $COLOUR").stdout == "red\n"
        assert each.get_info().metadata == {"kind": "kept"}
        each.kill()
    assert sandbox.is_running()


def notes(sandbox: Sandbox) -> None:
    """With a file, as extended attributes."""
    noted = {"author": "me", "purpose": "none"}
    assert sandbox.files.write("noted", "1", metadata=noted).metadata == noted
    assert sandbox.files.get_info("noted").metadata == noted
    assert sandbox.files.rename("noted", "moved").metadata == noted
    assert sandbox.files.write("moved", "2").metadata is None
    sandbox.files.make_dir("seen")
    watch = sandbox.files.watch_dir("seen", include_entry=True)
    sandbox.files.write("seen/file", "1", metadata=noted)
    entries = [each.entry for each in watch.get_new_events() if each.entry is not None]
    assert entries[0].path == "/home/user/seen/file"
    assert "MemTotal" in sandbox.files.read("/proc/meminfo")


def root(sandbox: Sandbox) -> None:
    """A root of its own, who can change what is outside the home."""
    assert sandbox.commands.run("whoami").stdout == "user\n"
    assert sandbox.commands.run("sudo whoami").stdout == "root\n"
    assert sandbox.commands.run("whoami; pwd", user="root").stdout == "root\n/root\n"
    sandbox.files.write("/etc/made-by-root", "1", user="root")
    assert sandbox.files.read("/etc/made-by-root") == "1"
    info = sandbox.files.get_info("/etc/made-by-root")
    assert (info.owner, info.group) == ("root", "root")
    assert sandbox.files.write("relative", "2", user="root").path == "/root/relative"
    refused(CommandExitException, lambda: sandbox.commands.run("touch /etc/made-by-user"))
    sandbox.files.write("/srv/app/main.py", "print(6 * 7)")
    assert sandbox.commands.run("python3 main.py >> out; cat out", cwd="/srv/app").stdout == "42\n"
    assert sandbox.files.get_info("/srv/app").owner == "user"
    assert sandbox.files.read("/root/relative") == "2"
    sandbox.commands.run("sudo install -m 755 /dev/stdin /usr/local/bin/greet <<< 'echo hello'")
    for other in (*sandbox.fork(timeout=60), begun_with(sandbox.create_snapshot("system"))):
        assert other.commands.run("greet; cat /etc/made-by-root").stdout == "hello\n1"
        assert other.files.get_info("/srv/app/out").owner == "user"
        other.kill()
    assert Sandbox.delete_snapshot("system") is True


def begun_with(snapshot: Any) -> Any:
    return Sandbox.create(snapshot.snapshot_id, timeout=60)


def networks(sandbox: Sandbox) -> None:
    assert sandbox.get_info().allow_internet_access is True
    sandbox.update_network({"allow_internet_access": False})
    assert sandbox.get_info().allow_internet_access is False
    closed = Sandbox.create(timeout=60, network={"deny_out": ["0.0.0.0/0"]})
    assert closed.get_info().allow_internet_access is False
    closed.kill()
    rules: Any = {"deny_out": [ALL_TRAFFIC], "allow_out": ["192.0.2.7", "*.allowed.test"]}
    ruled = Sandbox.create(timeout=60, network=rules)
    assert ruled.get_info().network == {"allow_public_traffic": True, **rules}
    for host, told in (("192.0.2.8", "denied"), ("192.0.2.7", "private")):
        shown = ruled.commands.run(f"curl -sv -m 5 https://{host} 2>&1 || true").stdout
        assert told in shown, shown
    ruled.update_network({})
    assert "denied" not in ruled.commands.run("curl -sv https://192.0.2.8 2>&1 || true").stdout
    ruled.kill()
    refused(SandboxException, lambda: Sandbox.create(network={"deny_out": ["a.test"]}))
    refused(SandboxException, lambda: Sandbox.create(network={"allow_out": ["a.test"]}))


def builds() -> None:
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        (context / "parts").mkdir()
        (context / "parts" / "a.txt").write_text("a")
        (context / "parts" / "link").symlink_to("a.txt")
        (context / "app.py").write_text("print(1)")
        recipe = (
            Template(file_context_path=folder)
            .from_base_image()
            .copy("parts/*", "into")
            .copy("app.py", "bin/", mode=0o755)
            .run_cmd("cat into/link into/a.txt > both")
            .set_envs({"TOLD": "by the recipe"})
            .set_envs({"PATH": "${PATH}:/opt/own"})
            .set_workdir("/home/user/work")
            .set_start_cmd(
                'echo "$TOLD" > began; exec python3 -m http.server 8124', wait_for_port(8124)
            )
        )
        told: list[str] = []
        built = Template.build(recipe, "kept:v1", on_build_logs=lambda each: told.append(str(each)))
    assert any("cat into/link" in each for each in told)
    sandbox = Sandbox.create("kept:v1", timeout=60)
    shown = sandbox.commands.run("pwd; cat ../both began; ls -l ../bin/app.py; ss -tln").stdout
    assert shown.startswith("/home/user/work\naaby the recipe\n-rwxr-xr-x"), shown
    assert ":8124" in shown
    sandbox.kill()
    assert Template.exists("kept") is True
    tagged = Template.assign_tags("kept:v1", ["stable"])
    assert (tagged.build_id, tagged.tags) == (built.build_id, ["stable"])
    assert {each.tag for each in Template.get_tags("kept")} == {"default", "v1", "stable"}
    Template.remove_tags("kept", ["stable"])
    refused(TemplateException, lambda: Template.remove_tags("kept", ["stable"]))
    refused(SandboxException, lambda: Sandbox.create("kept:stable"))
    # A login shell sets PATH anew where the image has a profile.
    path = 'test -e /etc/profile || test "${PATH##*:}" = /opt/own'
    inherited = f'test "$TOLD" = "by the recipe"; {path}; test $PWD = ~/work'
    again = Template.build(Template().from_template("kept").run_cmd(f"set -e; {inherited}"), "kept")
    assert again.template_id == built.template_id
    assert Sandbox.delete_snapshot("kept") is True
    assert Template.exists("kept") is False


def root_builds() -> None:
    """What root does is kept too."""
    recipe = (
        Template()
        .from_base_image()
        .run_cmd("echo built > /etc/built; useradd -m ann || true", user="root")
        .set_workdir("/app")
        .run_cmd("pwd > where; id -un >> where")
        .set_user("root")
        .run_cmd("id -un >> where")
        .set_start_cmd("id -un > /run-by; sleep 600", "test -s /run-by")
    )
    Template.build(recipe, "rooted")
    sandbox = Sandbox.create("rooted", timeout=60)
    shown = sandbox.commands.run("pwd; id -un; cat where /etc/built /run-by").stdout
    assert shown == "/app\nroot\n/app\nuser\nroot\nbuilt\nroot\n", shown
    assert sandbox.commands.run("id -un", user="user").stdout == "user\n"
    assert sandbox.files.get_info("/app/where").owner == "user"
    sandbox.kill()
    assert Sandbox.delete_snapshot("rooted") is True


def refused_builds() -> None:
    for recipe, told in (
        (Template().from_base_image().run_cmd("exit 3"), "exit status 3"),
        (Template().from_image("registry.invalid/none:1"), "could not be reached"),
        (Template().from_base_image().set_start_cmd("exit 7", "false"), "exit status 7"),
        (Template().from_base_image().run_cmd("true", user="guest"), "invalid username: 'guest'"),
    ):
        error = refused(BuildException, lambda recipe=recipe: Template.build(recipe, "never"))
        assert told in str(error), error
    assert Template.exists("never") is False
    refused(NotFoundException, lambda: Sandbox.connect("sbx-00000000000000000"))


def traffic() -> None:
    """Ports of a sandbox that is not public are opened by its token."""
    sandbox = Sandbox.create(timeout=60, network={"allow_public_traffic": False})
    sandbox.commands.run("echo hello > page; exec python3 -m http.server 8125", background=True)
    sandbox.commands.run("until curl -s localhost:8125 >/dev/null; do sleep 0.05; done")
    page = os.environ["E2B_API_URL"].removesuffix("/e2b") + "/page"
    host = {"Host": sandbox.get_host(8125)}
    opened = {**host, "E2B-Traffic-Access-Token": sandbox.traffic_access_token or ""}
    assert httpx.get(page, headers=opened, timeout=60).text == "hello\n"
    for headers, told in (
        (host, "missing"),
        ({**opened, "E2B-Traffic-Access-Token": "x"}, "invalid"),
    ):
        closed = httpx.get(page, headers=headers, timeout=60)
        assert (closed.status_code, closed.json()["sandboxId"]) == (403, sandbox.sandbox_id)
        assert told in closed.json()["message"]
    nothing = httpx.get(page, headers=opened | {"Host": sandbox.get_host(8126)}, timeout=60)
    assert (nothing.status_code, nothing.json()["port"]) == (502, 8126)
    assert nothing.json()["message"] == "The sandbox is running but port is not open"
    seen = httpx.get(
        page,
        headers={**opened, "Host": sandbox.get_host(8126), "User-Agent": "Mozilla/5.0"},
        timeout=60,
    )
    assert "<title>Closed Port Error</title>" in seen.text
    sandbox.kill()
    ports()


SERVE_TLS = """
import http.server, ssl
class Told(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.headers["Host"].encode())
server = http.server.HTTPServer(("127.0.0.1", 8443), Told)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def ports() -> None:
    """Of programs that speak TLS, or expect another host."""
    network: Any = {"https_ports": [8443], "mask_request_host": "masked.test:${PORT}"}
    sandbox = Sandbox.create(timeout=60, network=network)
    told = sandbox.get_info().network or {}
    assert {name: told.get(name) for name in network} == network
    sandbox.commands.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost"
        " -keyout key.pem -out cert.pem 2>/dev/null"
    )
    sandbox.files.write("serve.py", SERVE_TLS)
    sandbox.commands.run("python3 serve.py", background=True)
    sandbox.commands.run("until curl -ks https://localhost:8443 >/dev/null; do sleep 0.05; done")
    url = os.environ["E2B_API_URL"].removesuffix("/e2b")
    answer = httpx.get(url, headers={"Host": sandbox.get_host(8443)}, timeout=60)
    assert (answer.status_code, answer.text) == (200, "masked.test:8443")
    sandbox.commands.run("exec python3 -m http.server 8127 --bind ::1", background=True)
    sandbox.commands.run("until curl -s localhost:8127 >/dev/null; do sleep 0.05; done")
    assert httpx.get(url, headers={"Host": sandbox.get_host(8127)}, timeout=60).status_code == 200
    sandbox.kill()


def refused(kind: type[BaseException], call: Any) -> BaseException:
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


if __name__ == "__main__":
    main(*sys.argv[1:])
    # The SDK's HTTP library now and then aborts while Python ends; by then all is well.
    os._exit(0)

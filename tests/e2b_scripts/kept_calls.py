"""What is kept of sandboxes for others: snapshots, forks, builds of templates, notes with files.

Run with E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL set; it ends with 0 if all is well.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import httpx
from e2b import (
    BuildException,
    NotFoundException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    Template,
    TemplateException,
    wait_for_port,
)


def main() -> None:
    sandbox = Sandbox.create(timeout=120, envs={"COLOUR": "red"}, metadata={"kind": "kept"})
    try:
        snapshots(sandbox)
        forks(sandbox)
        notes(sandbox)
        root(sandbox)
        networks(sandbox)
    finally:
        sandbox.kill()
    refused(SandboxNotFoundException, sandbox.fork)
    refused(SandboxNotFoundException, sandbox.create_snapshot)
    builds()
    refused_builds()
    traffic()


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
    refused(SandboxException, lambda: sandbox.files.write("/etc/made-by-user", "1"))


def networks(sandbox: Sandbox) -> None:
    assert sandbox.get_info().allow_internet_access is True
    sandbox.update_network({"allow_internet_access": False})
    assert sandbox.get_info().allow_internet_access is False
    closed = Sandbox.create(timeout=60, network={"deny_out": ["0.0.0.0/0"]})
    assert closed.get_info().allow_internet_access is False
    closed.kill()
    refused(SandboxException, lambda: Sandbox.create(network={"deny_out": ["8.8.8.8"]}))


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
    again = Template.build(
        Template().from_template("kept").run_cmd("cat began || ls ../both"), "kept"
    )
    assert again.template_id == built.template_id
    assert Sandbox.delete_snapshot("kept") is True
    assert Template.exists("kept") is False


def refused_builds() -> None:
    for recipe, told in (
        (Template().from_base_image().run_cmd("exit 3"), "exit status 3"),
        (Template().from_image("ubuntu:22.04"), "fetches no images"),
        (Template().from_base_image().set_workdir("/app"), "outside /home/user"),
        (Template().from_base_image().run_cmd("true", user="guest"), "no user 'guest'"),
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
    assert httpx.get(page, headers=opened).text == "hello\n"
    assert httpx.get(page, headers=host).status_code == 404
    sandbox.kill()


def refused(kind: type[BaseException], call: Any) -> BaseException:
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


if __name__ == "__main__":
    main()
    # The SDK's HTTP library now and then aborts while Python ends; by then all is well.
    os._exit(0)

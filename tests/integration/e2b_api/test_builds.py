"""Builds and snapshots: what they store, and what is left when they fail."""

import asyncio
from types import MappingProxyType
from typing import Any

import httpx
import pytest

from sandyard.platform.wiring.local_runtime import runtime_folder
from sandyard.runtime.local.root_filesystems.store import RootFilesystems
from tests.integration.e2b_api.conftest import E2b
from tests.support.runtime.root_file_systems import member, tar


async def begin(e2b: E2b, name: str, recipe: Any, **size: int) -> tuple[str, httpx.Response]:
    """The path of the build, and the response to its start."""
    asked = await e2b.call("POST", "/v3/templates", {"name": name, **size})
    assert asked.status_code == 202, asked.text
    path = f"/templates/{asked.json()['templateID']}/builds/{asked.json()['buildID']}"
    return path, await e2b.call("POST", f"/v2{path}", recipe)


async def build(e2b: E2b, name: str, *, size: Any = MappingProxyType({}), **recipe: Any) -> Any:
    """The status of the build once it is done."""
    path, started = await begin(e2b, name, recipe, **size)
    assert started.status_code == 202, started.text
    async with asyncio.timeout(60):
        while True:
            status: dict[str, Any] = (await e2b.call("GET", f"{path}/status")).json()
            if status["status"] in ("ready", "error"):
                return status
            await asyncio.sleep(0.02)


def run(script: str) -> dict[str, Any]:
    return {"type": "RUN", "args": [script]}


WORKDIR = {"type": "WORKDIR", "args": ["/workspace/app"]}


async def test_a_build_makes_a_template(e2b: E2b) -> None:
    steps = [WORKDIR, {"type": "ENV", "args": ["A", "1"]}, run("echo made by $A > made")]
    built = await build(e2b, "mine", steps=steps)
    assert built["status"] == "ready", built
    shown = [each["message"] for each in built["logEntries"]]
    assert shown[0] == "FROM base"
    assert shown[-1] == "Build finished"
    template = (await e2b.call("GET", "/templates/mine")).json()
    assert [each["buildID"] for each in template["builds"]] == [built["buildID"]]
    found = (await e2b.platform.get("/sandboxes", e2b.account))["sandboxes"]
    assert [each["status"] for each in found if each["status"] != "recycled"] == []


async def test_a_failed_step_is_named_and_leaves_no_template(e2b: E2b) -> None:
    failed = await build(e2b, "mine", steps=[WORKDIR, run("echo why; exit 3"), run("true")])
    assert (failed["status"], failed["reason"]["step"]) == ("error", "2")
    assert failed["reason"]["message"] == "the command ended with exit status 3"
    assert "why" in [each["message"] for each in failed["reason"]["logEntries"]]
    assert (await e2b.call("GET", "/templates/aliases/mine")).status_code == 404


@pytest.mark.parametrize(
    ("recipe", "status"),
    [
        ({"fromImage": "no such image"}, 400),
        ({"fromTemplate": "no-such-template"}, 404),
        ({"steps": [{"type": "ADD", "args": []}]}, 400),
    ],
)
async def test_a_recipe_that_can_t_be_built(e2b: E2b, recipe: Any, status: int) -> None:
    path, started = await begin(e2b, "mine", recipe)
    assert started.status_code == status
    refused = (await e2b.call("GET", f"{path}/status")).json()
    assert (refused["status"], refused["reason"]["step"]) == ("error", "base")


async def test_refused_builds_do_not_use_up_the_limit_of_open_ones(e2b: E2b) -> None:
    for _ in range(21):
        _, started = await begin(e2b, "mine", {"fromImage": "no such image"})
        assert started.status_code == 400
    assert (await build(e2b, "mine"))["status"] == "ready"


def add_environment(e2b: E2b, name: str) -> None:
    file = e2b.platform.data_dir / "root.tar"
    file.write_bytes(tar(member("bin/sh", b"a shell")))
    RootFilesystems(runtime_folder(e2b.platform.data_dir)).add(name, file, now=1.0)


async def test_an_image_is_its_environment_and_never_a_build_of_anybody(e2b: E2b) -> None:
    add_environment(e2b, "debian-12")
    other = await e2b.as_another()
    for each in (other, e2b):
        built = await build(each, "base", fromImage="debian:12", steps=[WORKDIR, run("touch evil")])
        assert built["status"] == "ready", built
    published = await other.call("PATCH", "/v2/templates/base", {"public": True})
    assert published.status_code == 200
    steps = [WORKDIR, run("test ! -e evil")]
    clean = await build(e2b, "mine", fromImage="debian:12", steps=steps)
    assert clean["status"] == "ready", clean
    assert clean["logEntries"][0]["message"] == "FROM debian-12"


@pytest.mark.parametrize(
    "size",
    [
        {"cpuCount": 0},
        {"cpuCount": -1},
        {"cpuCount": 1.5},
        {"cpuCount": 64},
        {"memoryMB": 0},
        {"memoryMB": 1 << 20},
    ],
)
async def test_a_size_that_no_machine_has_is_refused(e2b: E2b, size: dict[str, Any]) -> None:
    refused = await e2b.call("POST", "/v3/templates", {"name": "mine", **size})
    assert refused.status_code == 400
    assert f"`{next(iter(size))}` is not valid" in refused.json()["message"]


async def test_the_size_counts_against_the_quota_in_the_build_and_in_each_sandbox(e2b: E2b) -> None:
    size = {"cpuCount": 8, "memoryMB": 4096}
    numbers = "1 of 8 cpu in use, 8 needed"
    other = await e2b.create()
    refused = await build(e2b, "large", size=size)
    assert (refused["status"], refused["reason"]["step"]) == ("error", "base")
    assert numbers in refused["reason"]["message"]
    await e2b.call("DELETE", f"/sandboxes/{other['sandboxID']}")
    assert (await build(e2b, "large", size=size))["status"] == "ready"
    await e2b.create()
    second = await e2b.call("POST", "/v2/sandboxes", {"templateID": "large"})
    assert (second.status_code, numbers in second.json()["message"]) == (429, True)


async def test_a_rebuild_has_the_new_size_and_image(e2b: E2b) -> None:
    add_environment(e2b, "debian-12")
    await build(e2b, "mine", size={"cpuCount": 1, "memoryMB": 1024})
    again = await build(e2b, "mine", size={"cpuCount": 2, "memoryMB": 2048}, fromImage="debian:12")
    assert again["status"] == "ready", again
    template = (await e2b.call("GET", "/templates/mine")).json()
    assert (template["cpuCount"], template["memoryMB"]) == (2, 2048)
    path = f"/templates/{template['templateID']}"
    stored = await e2b.platform.get(path, e2b.account)
    assert stored["environment"] == "debian-12"


async def test_builds_of_one_template_have_one_image(e2b: E2b) -> None:
    add_environment(e2b, "debian-12")
    await build(e2b, "mine:v1")
    _, started = await begin(e2b, "mine:v2", {"fromImage": "debian:12"})
    assert started.status_code == 400
    assert "builds of another image, with the tags default, v1" in started.json()["message"]


async def test_tags_move_between_builds(e2b: E2b) -> None:
    first = await build(e2b, "mine:v1")
    await build(e2b, "mine:v2")
    body = {"target": "mine:v1", "tags": ["stable"]}
    assert (await e2b.call("POST", "/templates/tags", body)).json()["buildID"] == first["buildID"]
    tags = {each["tag"] for each in (await e2b.call("GET", "/templates/mine/tags")).json()}
    assert {"v1", "v2", "stable"} <= tags
    removed = await e2b.call("DELETE", "/templates/tags", {"name": "mine", "tags": ["stable"]})
    assert removed.status_code == 204
    assert (await e2b.call("DELETE", "/templates/mine")).status_code == 204
    assert (await e2b.call("GET", "/templates/mine")).status_code == 404


async def test_snapshots_are_named_and_paged(e2b: E2b) -> None:
    sandbox_id = (await e2b.create())["sandboxID"]
    unnamed = await e2b.call("POST", f"/sandboxes/{sandbox_id}/snapshots", {})
    assert (unnamed.status_code, unnamed.json()["names"]) == (201, [])
    named = await e2b.call("POST", f"/sandboxes/{sandbox_id}/snapshots", {"name": "mine:v1"})
    assert named.json()["names"] == ["mine:v1"]
    page = await e2b.call("GET", f"/snapshots?sandboxID={sandbox_id}&limit=1")
    assert len(page.json()) == 1
    rest = await e2b.call("GET", f"/snapshots?limit=1&nextToken={page.headers['x-next-token']}")
    assert len(rest.json()) == 1
    assert "x-next-token" not in rest.headers
    assert (await e2b.call("DELETE", f"/sandboxes/{sandbox_id}")).status_code == 204
    gone = await e2b.call("POST", f"/sandboxes/{sandbox_id}/snapshots", {})
    assert gone.status_code == 404


async def test_what_a_build_would_store_beyond_the_quota_is_refused(e2b: E2b) -> None:
    """Of twenty GB, seventeen are used: a sandbox may run, but its files can't be stored twice."""
    await store_elsewhere(e2b, 17 * 2**30)
    failed = await build(e2b, "mine", steps=[WORKDIR])
    assert (failed["status"], failed["reason"]["step"]) == ("error", "finalize")
    assert "19 of 20 storage_gb in use, 2 needed" in failed["reason"]["message"]


async def test_an_upload_is_refused_once_the_quota_is_used_up(e2b: E2b) -> None:
    asked = (await e2b.call("POST", "/v3/templates", {"name": "mine"})).json()
    path = f"/templates/{asked['templateID']}/files/{64 * 'a'}"
    link = (await e2b.call("GET", path)).json()["url"]
    sent = await e2b.platform.client.put(link, content=b"x" * 2**20)
    assert sent.status_code < 300, sent.text
    assert await e2b.platform.part.wired.storage.elsewhere_gb(e2b.account.account_id) == 2**-10
    await store_elsewhere(e2b, 20 * 2**30)
    refused = await e2b.platform.client.put(link, content=b"x" * 2**20)
    assert refused.status_code == 429
    assert "storage_gb in use" in refused.text


async def test_uploads_at_the_same_time_share_what_is_left(e2b: E2b) -> None:
    asked = (await e2b.call("POST", "/v3/templates", {"name": "mine"})).json()
    await store_elsewhere(e2b, 20 * 2**30 - 2**20)
    links = [
        (await e2b.call("GET", f"/templates/{asked['templateID']}/files/{64 * each}")).json()["url"]
        for each in "abcd"
    ]
    content = b"x" * (3 * 2**18)
    sent = await asyncio.gather(*(e2b.platform.client.put(link, content=content) for link in links))
    assert sorted(each.status_code for each in sent) == [200, 413, 413, 413]


async def store_elsewhere(e2b: E2b, size_bytes: int) -> None:
    async def stored(account_id: str) -> int:
        return size_bytes if account_id == e2b.account.account_id else 0

    e2b.platform.part.wired.storage.add(stored)

"""Builds and snapshots: what they store, and what is left when they fail."""

import asyncio
from typing import Any

import pytest

from tests.integration.e2b_api.conftest import E2b


async def build(e2b: E2b, name: str, **recipe: Any) -> dict[str, Any]:
    """The status of the build once it is done."""
    asked = await e2b.call("POST", "/v3/templates", {"name": name})
    assert asked.status_code == 202, asked.text
    template_id, build_id = asked.json()["templateID"], asked.json()["buildID"]
    path = f"/templates/{template_id}/builds/{build_id}"
    started = await e2b.call("POST", f"/v2{path}", recipe)
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
        ({"fromImage": "no-such-image"}, 400),
        ({"fromTemplate": "no-such-template"}, 404),
        ({"steps": [{"type": "ADD", "args": []}]}, 400),
    ],
)
async def test_a_recipe_that_can_t_be_built(e2b: E2b, recipe: Any, status: int) -> None:
    asked = (await e2b.call("POST", "/v3/templates", {"name": "mine"})).json()
    path = f"/v2/templates/{asked['templateID']}/builds/{asked['buildID']}"
    assert (await e2b.call("POST", path, recipe)).status_code == status


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

"""Folders that are too large for one answer."""

from typing import Any

from tests.integration.attacks.inputs.conftest import Yard
from tests.support.platform.sandboxes import act, add_sandbox


async def make_files(yard: Yard, count: int) -> str:
    """The path of the calls about the files of a sandbox with this many."""
    sandbox = await add_sandbox(yard.api, yard.account)
    await act(yard.api, yard.account, sandbox, "start")
    path = f"/api/v1/sandboxes/{sandbox['sandbox_id']}"
    script = {"command": f"seq {count} | xargs touch", "timeout_sec": 60}
    made = await yard.call("POST", f"{path}/commands", json=script)
    assert made.json()["exit_code"] == 0, made.text
    return f"{path}/files"


async def test_a_large_folder_is_listed_in_pages(yard: Yard) -> None:
    path = await make_files(yard, 2500)
    found: list[dict[str, Any]] = []
    query: dict[str, str] = {}
    sizes = []
    while True:
        answer = await yard.call("GET", f"{path}/list", params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page["files"]
        sizes.append(len(page["files"]))
        if page["next_cursor"] is None:
            break
        query = {"cursor": page["next_cursor"]}
    assert sizes == [1000, 1000, 500]
    assert len({each["path"] for each in found}) == 2500
    foreign = await yard.call("GET", f"{path}/list", params=query | {"depth": "2"})
    assert foreign.json()["error"]["code"] == "INVALID_CURSOR"
    assert (await yard.call("GET", f"{path}/list", params={"limit": "1001"})).status_code == 400


async def test_a_listing_of_e2b_has_its_own_attributes_only(yard: Yard) -> None:
    inside = await yard.create_e2b()
    path = {"path": "/workspace/noted"}
    headers = inside | {"X-Metadata-Author": "ann", "Content-Type": "application/octet-stream"}
    await yard.call("POST", "/e2b/files", params=path, content=b"x", headers=headers)
    [session] = [
        await yard.api.part.wired.sessions.into(each)
        for each in await yard.api.part.wired.store.active_on(yard.api.part.wired.node)
    ]
    await session.files.set_attributes("noted", {"own": "x" * 3000})
    call = "/e2b/filesystem.Filesystem/ListDir"
    listed = await yard.call("POST", call, json={"path": "/workspace"}, headers=inside)
    assert listed.json()["entries"][0]["metadata"] == {"author": "ann"}
    assert len(listed.content) < 1000
    for depth in (-1, 101, 1e300, "a"):
        asked = {"path": "/workspace", "depth": depth}
        refused = await yard.call("POST", call, json=asked, headers=inside)
        assert refused.status_code == 400, depth

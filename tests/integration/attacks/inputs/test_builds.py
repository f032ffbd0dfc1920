"""Builds that write without end: their logs are on the disk, and small."""

import asyncio
from dataclasses import replace
from typing import Any

from tests.integration.attacks.inputs.conftest import Yard

_MEGABYTE = 1 << 20


async def build(yard: Yard, script: str) -> tuple[str, dict[str, Any]]:
    """The path of a build with this step, and its status once it is done."""
    asked = (await yard.call("POST", "/e2b/v3/templates", json={"name": "mine"})).json()
    path = f"/templates/{asked['templateID']}/builds/{asked['buildID']}"
    steps = [
        {"type": "WORKDIR", "args": ["/workspace/app"]},
        {"type": "RUN", "args": [script]},
    ]
    started = await yard.call("POST", f"/e2b/v2{path}", json={"steps": steps})
    assert started.status_code == 202, started.text
    async with asyncio.timeout(120):
        while True:
            status = (await yard.call("GET", f"/e2b{path}/status")).json()
            if status["status"] in ("ready", "error"):
                return path, status
            await asyncio.sleep(0.05)


def log_bytes(yard: Yard) -> int:
    return sum(file.stat().st_size for file in (yard.api.data_dir / "builds").rglob("*.log"))


async def test_output_without_a_newline_is_cut_as_it_comes(yard: Yard) -> None:
    path, status = await build(yard, "head -c 8000000 /dev/zero | tr '\\0' x")
    assert status["status"] == "ready", status
    assert max(len(each["message"]) for each in status["logEntries"]) == 4096
    assert log_bytes(yard) < _MEGABYTE + 1000
    logs = (await yard.call("GET", f"/e2b{path}/logs")).json()["logs"]
    assert logs[-1]["message"] == "Build finished"


async def test_a_log_of_many_lines_is_limited_and_ends_with_the_failure(yard: Yard) -> None:
    _, status = await build(yard, "yes | head -n 1000000; exit 3")
    assert status["reason"]["logEntries"][-1]["message"] == status["reason"]["message"]
    assert log_bytes(yard) < _MEGABYTE + 1000


async def test_logs_of_old_builds_are_removed(yard: Yard) -> None:
    await build(yard, "true")
    assert log_bytes(yard) > 0
    yard.api.clock.advance(86_401)
    later = replace(yard, account=await yard.api.account())
    asked = await later.call("POST", "/e2b/v3/templates", json={"name": "other"})
    assert asked.status_code == 202
    assert log_bytes(yard) == 0

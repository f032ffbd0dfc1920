"""The log of a preview, as it is and as it goes on."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from sandyard.kit.free_ports import free_port
from sandyard.previews.launcher.preview import LOG_BYTES
from sandyard.previews.providers.program import LAUNCHER
from tests.support.e2b.double import e2b_double
from tests.support.e2b.machines import e2b_machines
from tests.support.platform.in_process import Caller
from tests.support.previews.in_process import PreviewApi, preview_api
from tests.support.previews.providers import connect_to, create, local_provider
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import end_all

SERVE = "web: echo one; echo two; exec python3 -m http.server --bind 127.0.0.1 $PORT\n"


async def lines(api: PreviewApi, caller: Caller, project: str) -> list[str]:
    found = await api.get(f"/projects/{project}/sandbox/logs", caller)
    return list(found["lines"])


async def test_a_log_is_followed_until_its_preview_ends(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path / "runtime")
    provider = local_provider(runtime)
    async with (
        e2b_double() as double,
        preview_api(None, tmp_path, double, provider=provider) as api,
    ):
        ann = await api.account()
        project = await api.project(ann, Procfile=SERVE)
        follow = f"/projects/{project}/sandbox/logs?follow=true"
        assert (await api.call("GET", follow, ann)).text == ""
        await api.sync(ann, project)
        async with asyncio.timeout(60):
            while "two" not in await lines(api, ann, project):
                await asyncio.sleep(0.05)
        following = asyncio.create_task(api.call("GET", follow, ann))
        await asyncio.sleep(0.5)
        assert not following.done()
        await api.call("DELETE", f"/projects/{project}/sandbox", ann)
        async with asyncio.timeout(60):
            followed = (await following).text.splitlines()
        assert followed[:2] == ["one", "two"]
        assert await lines(api, ann, project) == []
    await end_all(runtime)


async def test_a_log_at_e2b_is_followed_with_what_is_written_meanwhile(tmp_path: Path) -> None:
    async with e2b_machines(tmp_path) as double:
        provider = connect_to(double)
        wait = "until [ -e go ]; do sleep 0.1; done"
        files = {"Procfile": f"web: echo one; {wait}; echo two; exit 3\n".encode()}
        made = await create(provider, files=files)
        found = provider.follow_log(made.sandbox_id, lines=1)
        async with asyncio.timeout(60):
            while await anext(found) != "one":
                pass
            await provider.write_files(made.sandbox_id, written={"go": b""}, deleted=[])
            while await anext(found) != "two":
                pass
            while (state := await provider.application(made.sandbox_id)) is None or (
                state.phase != "failed"
            ):
                await asyncio.sleep(0.1)
        assert state.exit_code == 3
        assert state.last_lines[0] == "one"
        await provider.kill(made.sandbox_id)


def test_a_log_in_a_file_is_bounded(tmp_path: Path) -> None:
    """As at E2B, where each reading sends all of it."""
    site, state, log = tmp_path / "site", tmp_path / "state", tmp_path / "log"
    site.mkdir()
    line = "x" * 4000
    write = f"for i in $(seq {3 * LOG_BYTES // 4000}); do echo {line}; done; echo written; exit 3"
    (site / "Procfile").write_text(f"web: {write}\n")
    program = tmp_path / "launcher.pyz"
    program.write_bytes(LAUNCHER)
    words = [sys.executable, "-I", str(program), "127.0.0.1", str(free_port())]
    with log.open("ab") as file:
        process = subprocess.Popen([*words, str(site), str(state)], stdout=file)
    try:
        deadline = time.monotonic() + 60
        while "ended with 3" not in (text := log.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(text) < LOG_BYTES + 2 * len(line)
        assert "written" in text
    finally:
        process.kill()
        process.wait()

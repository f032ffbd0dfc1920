"""What is started in sandboxes of some templates."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.e2b_api.errors import NotOfferedError
from sandyard.e2b_api.sandboxes.launcher import SandboxLauncher
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.templates.model import Template
from tests.fakes.session import FakeMachine, FakeSession
from tests.unit.platform.sandboxes.examples import SANDBOX, TEMPLATE


class Sessions:
    def __init__(self, folder: Path) -> None:
        self.machine = FakeMachine(folder)

    async def into(self, _sandbox: Sandbox) -> FakeSession:
        return await self.machine.connect()


class NoVariables:
    async def of_sandbox(self, _sandbox: Sandbox) -> Mapping[str, str]:
        return {}


async def launched(tmp_path: Path, template: Template | None) -> FakeSession:
    sessions = Sessions(tmp_path / "machine")
    await SandboxLauncher(sessions, NoVariables(), None).launch(SANDBOX, template)
    return await sessions.into(SANDBOX)


async def test_most_templates_need_nothing(tmp_path: Path) -> None:
    for template in (None, TEMPLATE):
        session = await launched(tmp_path, template)
        assert await session.processes.list() == []


async def test_a_start_command_runs_until_it_is_ready(tmp_path: Path) -> None:
    template = replace(
        TEMPLATE,
        start_command="sleep 0.2; touch ready; exec sleep 100",
        ready_command="test -e ready",
        working_folder="/workspace",
    )
    session = await launched(tmp_path, template)
    assert (await session.files.stat("ready")).kind == "file"
    [started] = [each for each in await session.processes.list() if each.tag == "start"]
    assert started.is_running
    await session.processes.end()


async def test_without_kernels_there_is_no_interpreter(tmp_path: Path) -> None:
    template = replace(TEMPLATE, repository_url="builtin:code-interpreter-v1")
    with pytest.raises(NotOfferedError, match="SANDBOX_KERNELS"):
        await launched(tmp_path, template)

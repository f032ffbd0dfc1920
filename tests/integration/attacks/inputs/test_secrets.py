"""A machine that keeps its egress proxy busy: the secrets of others change all the same."""

import asyncio
import time
from pathlib import Path

from sandyard.runtime.model import RunId
from sandyard.runtime.secrets_model import MachineSecrets
from tests.fakes.runtime import FakeRuntime
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import platform_api
from tests.support.platform.sandboxes import act, add_sandbox

BINDING = {"hosts": ["api.example.com"]}


class BusyRuntime(FakeRuntime):
    """One of its machines does not answer."""

    busy = ""
    answers = asyncio.Event()

    async def set_secrets(self, run_id: RunId, secrets: MachineSecrets) -> None:
        if run_id.id == self.busy:
            await self.answers.wait()
        await super().set_secrets(run_id, secrets)


async def test_secrets_change_beside_a_machine_that_does_not_answer(tmp_path: Path) -> None:
    runtime, clock = BusyRuntime(tmp_path / "machines"), ManualClock(time.time())
    async with platform_api(None, tmp_path, clock, runtime=runtime) as api:
        [job] = [each for each in api.part.schedule if each.name.startswith("ends")]
        owners = {}
        for owner in (await api.account(), await api.account()):
            sandbox = await add_sandbox(api, owner)
            await act(api, owner, sandbox, "start")
            owners[str(sandbox["sandbox_id"])] = owner
        for runtime.busy in owners:  # whichever is the first
            runtime.answers.clear()
            runtime.secrets.clear()
            for sandbox_id, owner in owners.items():
                body = {"value": f"value-{runtime.busy}", "secret": True, "binding": BINDING}
                path = f"/sandboxes/{sandbox_id}/env/API_KEY"
                answer = await api.call("PUT", path, owner, json=body)
                assert answer.is_success, answer.text
            running = asyncio.create_task(api.part.runner.run(job))
            async with asyncio.timeout(60):
                while runtime.secrets.keys() != owners.keys() - {runtime.busy}:
                    await asyncio.sleep(0.01)
            runtime.answers.set()
            await running
    await runtime.end_all()

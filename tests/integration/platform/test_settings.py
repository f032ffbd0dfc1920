"""Settings of the Platform, each by what it changes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sandyard.kit.clock import utc_time
from sandyard.kit.concurrency.streams import TooManyStreamsError
from sandyard.kit.free_ports import free_port
from sandyard.kit.sizes import GIGABYTE
from sandyard.platform.measurements.model import Measurement
from sandyard.runtime.model import Ended, Limits, Program, RunId, Running, Snapshot
from tests.fakes.runtime import FakeRuntime
from tests.support.clocks import RunningClock
from tests.support.platform.in_process import PASSWORD, PlatformApi, code_of, platform_api
from tests.support.platform.sandboxes import act, add_sandbox


class RecordingRuntime(FakeRuntime):
    """Knows the limits of its runs, and stores their files."""

    limits: Limits | None = None

    async def start(self, run_id: RunId, program: Program, limits: Limits) -> Running:
        self.limits = limits
        return await super().start(run_id, program, limits)

    async def stop(self, run_id: RunId, *, has_memory: bool = False) -> Ended:
        ended = await super().stop(run_id, has_memory=has_memory)
        snapshot = Snapshot(f"snap-{run_id.id}", 1, ended.ended_at)
        self._runs[run_id] = kept = replace(ended, snapshot=snapshot)
        return kept


async def test_intervals_of_jobs(tmp_path: Path) -> None:
    intervals = {
        "billing_interval_sec": 1001,
        "snapshots_interval_sec": 1002,
        "warm_interval_sec": 1003,
    }
    async with platform_api(None, tmp_path, RunningClock(), sandboxes=intervals) as api:
        found = {job.plain_name: job.interval_sec for job in api.part.schedule}
    assert (found["billing"], found["snapshots"], found["warm"]) == (1001, 1002, 1003)


async def test_limits_of_a_sandbox(tmp_path: Path) -> None:
    runtime = RecordingRuntime(tmp_path / "machines")
    chosen = {"sandbox_processes": 77, "sandbox_storage_gb": 3}
    async with platform_api(
        None, tmp_path, RunningClock(), runtime=runtime, sandboxes=chosen
    ) as api:
        ann = await api.account()
        await act(api, ann, await add_sandbox(api, ann), "start")
    assert runtime.limits is not None
    assert (runtime.limits.processes, runtime.limits.storage_bytes) == (77, 3 * GIGABYTE)


async def test_how_long_files_are_kept_and_when_their_owner_is_warned(tmp_path: Path) -> None:
    runtime = RecordingRuntime(tmp_path / "machines")
    chosen = {"snapshot_days": 2, "snapshot_warning_hours": 49}
    async with platform_api(
        None, tmp_path, RunningClock(), runtime=runtime, sandboxes=chosen
    ) as api:
        ann = await api.account()
        sandbox = await add_sandbox(api, ann)
        await act(api, ann, sandbox, "start")
        stopped = await act(api, ann, sandbox, "stop")
        ended_at, expires_at = stopped["stopped_at"], stopped["snapshot_expires_at"]
        kept_for = datetime.fromisoformat(expires_at) - datetime.fromisoformat(ended_at)
        assert kept_for == timedelta(days=2)
        assert (await run_job(api, "snapshots")).warned == 1


async def test_variables_per_account(tmp_path: Path) -> None:
    async with platform_api(None, tmp_path, RunningClock(), variables_per_account=1) as api:
        ann = await api.account()
        path = f"/sandboxes/{(await add_sandbox(api, ann))['sandbox_id']}/env"
        assert (await api.call("PUT", f"{path}/A", ann, json={"value": "1"})).status_code == 200
        refused = await api.call("PUT", f"{path}/B", ann, json={"value": "2"})
        assert code_of(refused) == (409, "VARIABLES_LIMIT_EXCEEDED")


async def test_login_hours(tmp_path: Path) -> None:
    clock = RunningClock()
    async with platform_api(None, tmp_path, clock, login_hours=2) as api:
        ann = await api.account()
        clock.advance(2 * 3600 - 60)
        assert (await api.call("GET", "/me", ann)).status_code == 200
        clock.advance(120)
        assert (await api.call("GET", "/me", ann)).status_code == 401


async def test_mail_from(tmp_path: Path) -> None:
    sender = "labs@example.com"
    async with platform_api(None, tmp_path, RunningClock(), mail_from=sender) as api:
        ann = {"email": "ann@example.com", "username": "ann", "password": PASSWORD}
        await api.post("/auth/signup", None, ann)
        assert [mail["From"] for mail in await api.mails()] == [sender]


async def test_quota_storage_gb(tmp_path: Path) -> None:
    chosen = {"quota_storage_gb": 3}
    async with platform_api(None, tmp_path, RunningClock(), sandboxes=chosen) as api:
        quotas = (await api.get("/me/quota", await api.account()))["quotas"]
        assert [each["limit"] for each in quotas if each["resource"] == "storage_gb"] == [3]


async def test_streams_per_account(tmp_path: Path) -> None:
    async with platform_api(None, tmp_path, RunningClock(), streams_per_account=1) as api:
        streams = api.part.guard.streams
        with streams.opened("ann"):
            with pytest.raises(TooManyStreamsError), streams.opened("ann"):
                pass
            with streams.opened("bob"):
                pass


async def test_metrics_days(tmp_path: Path) -> None:
    async with platform_api(None, tmp_path, RunningClock(), sandboxes={"metrics_days": 2}) as api:
        ann = await api.account()
        sandbox_id = (await add_sandbox(api, ann))["sandbox_id"]
        now = utc_time(api.clock.now())
        samples = [
            Measurement(f"mtr-{days}", sandbox_id, now - timedelta(days=days), 1, 1, 1)
            for days in (1, 3)
        ]
        await api.part.wired.measurements.add(samples)
        assert (await run_job(api, "measure")).removed == 1


async def run_job(api: PlatformApi, name: str) -> Any:
    [job] = [job for job in api.part.schedule if job.plain_name == name]
    return await api.part.runner.run(job)


_SILENT = "import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(60)"


async def runtime_ports(api: PlatformApi, sandbox: dict[str, Any]) -> Sequence[int]:
    ports = await api.part.wired.targets.ports(sandbox["sandbox_id"])
    return await ports.listening()


async def test_connections_through_the_gateway_and_how_long_it_waits(tmp_path: Path) -> None:
    chosen = {"gateway_connections": 1, "gateway_timeout_sec": 1}
    runtime = FakeRuntime(tmp_path / "machines")
    async with platform_api(
        None, tmp_path, RunningClock(), runtime=runtime, sandboxes=chosen
    ) as api:
        ann = await api.account()
        sandbox = await act(api, ann, await add_sandbox(api, ann), "start")
        path, port = f"/sandboxes/{sandbox['sandbox_id']}", free_port()
        silent = _SILENT.format(port=port)
        body = {"command": ["python3", "-c", silent], "background": True}
        await api.post(f"{path}/commands", ann, body)
        async with asyncio.timeout(20):
            while port not in await runtime_ports(api, sandbox):
                await asyncio.sleep(0.05)
        token = (await api.post(f"{path}/tokens", ann, {}))["token"]
        url = f"http://{port}-{sandbox['sandbox_id']}.localhost/"
        headers = {"X-Access-Token": token}
        answers = await asyncio.gather(
            *(api.client.get(url, headers=headers, timeout=30) for _ in range(2))
        )
    assert sorted(each.status_code for each in answers) == [429, 504]

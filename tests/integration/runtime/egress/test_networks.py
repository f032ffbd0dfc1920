"""What a machine reaches by each network, through the egress proxy and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.runtime.local.root_filesystems.settings import PackageSources
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import IsolationMode, Program, RunId
from sandyard.runtime.network_model import EgressReport, Network
from sandyard.runtime.sessions.model import Command
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, MEGABYTE, OBEDIENT, end_all, new_run_id
from tests.support.services.package_indexes import (
    HOST,
    NETWORK,
    PackageIndex,
    installed_packages,
    package_index,
    small_package,
    small_wheel,
)

_LIMITS = replace(LIMITS, memory_bytes=1024 * MEGABYTE, processes=64)


@pytest.fixture(scope="module")
def index() -> Iterator[PackageIndex]:
    wheels = small_wheel("greeting", "def main():\n    print('hello from a wheel')\n")
    packages = small_package("greeter", "#!/usr/bin/env node\nconsole.log('hello from npm')\n")
    with package_index(wheels=wheels, packages=packages) as index:
        yield index


class Machine:
    def __init__(self, runtime: LocalRuntime, run_id: RunId) -> None:
        self.runtime = runtime
        self.run_id = run_id

    async def run(self, line: str) -> str:
        """What it writes, and its code if that is not 0."""
        session = await self.runtime.session(self.run_id)
        process = await session.processes.start(Command(("/bin/sh", "-c", f"exec 2>&1; {line}")))
        done = await session.processes.wait(process.id, timeout_sec=300)
        output = [each.data async for each in session.processes.output(process.id)]
        said = b"".join(output).decode(errors="replace").strip()
        return said + (f" [{done.exit_code}]" if done.exit_code else "")

    async def report(self, *, refused: int) -> EgressReport:
        """Once so many were refused."""
        async with asyncio.timeout(10):
            while (report := await self.runtime.egress_report(self.run_id)).refused < refused:
                await asyncio.sleep(0.05)
        return report


def policy_for(index: PackageIndex) -> LocalOptions:
    port = index.url.rpartition(":")[2]
    return LocalOptions(
        allowed_hosts=("pypi.org", f"{HOST}:{port}"),
        egress_networks=(NETWORK,),
        packages=PackageSources(index.pip_index_url, index.npm_registry, f"{index.url}/debian"),
    )


@pytest.fixture
async def runtime(tmp_path: Path, index: PackageIndex) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path / "runtime", policy_for(index))
    yield runtime
    await end_all(runtime)


async def bare(runtime: LocalRuntime, network: Network, program: Program | None = None) -> Machine:
    run_id = new_run_id()
    program = replace(program or Program(None), network=network)
    await runtime.start(run_id, program, _LIMITS)
    return Machine(runtime, run_id)


async def test_packages_are_installed_as_a_person_types_it(
    runtime: LocalRuntime, index: PackageIndex
) -> None:
    machine = await bare(runtime, "packages")
    assert (await machine.run("python --version")).startswith("Python 3")
    installed = await machine.run("pip install greeting && greeting")
    assert installed.endswith("hello from a wheel"), installed
    assert "hello" in await machine.run(
        "python -m venv .venv && .venv/bin/pip install greeting && .venv/bin/greeting"
    )
    installed = await machine.run("npm install greeter && npx greeter")
    assert installed.endswith("hello from npm"), installed
    assert (await machine.run("npm install -g greeter && greeter")).endswith("hello from npm")
    await machine.run("apt-get update")
    assert any(path.startswith("/debian/dists/") for path in index.asked), index.asked
    report = await machine.report(refused=0)
    assert report.connections > 0
    assert report.bytes_received > 0
    assert any("greeter" in path for path in index.asked)


@pytest.mark.torture
@pytest.mark.parametrize("isolation", ["bubblewrap", "gvisor"])
async def test_a_web_application_is_created_installed_and_built(
    tmp_path: Path, isolation: IsolationMode
) -> None:
    packages = {**installed_packages("create-vite@6"), **installed_packages("vite@6")}
    with package_index(wheels={}, packages=packages) as index:
        runtime = LocalRuntime(tmp_path / "vite", policy_for(index))
        machine = await bare(runtime, "packages", Program(None, isolation=isolation))
        made = await machine.run("npm create vite@6 app -- --template vanilla </dev/null")
        assert "Done" in made, made
        installed = await machine.run("cd app && npm install")
        assert "added" in installed, installed
        built = await machine.run("cd app && npm run build && ls dist")
        assert built.splitlines()[-1] == "vite.svg", built
        assert "index.html" in built
        await end_all(runtime)


async def test_what_is_not_listed_is_blocked_and_told(runtime: LocalRuntime) -> None:
    machine = await bare(runtime, "packages", OBEDIENT)
    said = await machine.run("curl -sS https://example.org/")
    assert "403" in said
    said = await machine.run(
        "pip install --retries 1 --index-url https://example.org/simple greeting"
    )
    assert "blocked: example.org (not in the package allow-list)" in said
    said = await machine.run("npm install --fetch-retries 0 --registry http://example.org/ greeter")
    assert "blocked: example.org" in said
    report = await machine.report(refused=3)
    assert {(each.host, each.reason) for each in report.refusals} == {
        ("example.org", "not in the package allow-list")
    }
    log = await runtime.tail_logs(machine.run_id, lines=10)
    assert "blocked: example.org (not in the package allow-list)" in log
    await runtime.stop(machine.run_id)
    assert (await runtime.egress_report(machine.run_id)).refused == report.refused


async def test_a_network_is_changed_while_it_runs(
    runtime: LocalRuntime, index: PackageIndex
) -> None:
    machine = await bare(runtime, "none")
    fetch = f"curl -sS -o /dev/null -w '%{{http_code}}' {index.url}/simple/greeting/"
    assert await machine.run(fetch) == "403"
    await runtime.set_network(machine.run_id, "internet")
    assert await machine.run(fetch) == "200"
    await runtime.set_network(machine.run_id, "none")
    assert await machine.run(fetch) == "403"
    report = await machine.report(refused=2)
    assert (report.network, report.connections) == ("none", 1)


async def test_the_way_out_is_no_way_in(runtime: LocalRuntime) -> None:
    machine = await bare(runtime, "packages")
    session = await runtime.session(machine.run_id)
    assert await session.ports.listening() == []


async def test_nothing_leads_out_past_the_policy(
    runtime: LocalRuntime, index: PackageIndex
) -> None:
    machine = await bare(runtime, "none")
    for line in (
        f"curl -sS --noproxy '*' --fail --max-time 5 {index.url}/",
        "python3 -c 'import socket; socket.create_connection((\"1.1.1.1\", 53), 5).recv(1)[0]'",
        "python3 -c 'import socket; socket.create_connection((\"2606:4700::1\", 443), 5)'",
    ):
        assert (await machine.run(line)).endswith("]"), line
    names = await machine.run("cd /sys/class/net && echo * || cut -d: -f1 -s /proc/net/dev")
    assert set(names.split()) >= {"eth0", "lo"}

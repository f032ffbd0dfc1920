"""Machines with a root file system of their own."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from shutil import which

import pytest

from sandyard.runtime.errors import EnvironmentInUseError, EnvironmentMissingError
from sandyard.runtime.local.root_filesystems.store import RootFilesystems
from sandyard.runtime.model import Program
from sandyard.runtime.sessions.model import Command
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, clear, end_all, new_run_id
from tests.support.runtime.root_file_systems import member, oci_layout, small_root, tar


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    tmp_path.chmod(0o755)
    runtime = LocalRuntime(tmp_path / "runtime")
    yield runtime
    await end_all(runtime)


@pytest.fixture
def environments(tmp_path: Path) -> RootFilesystems:
    return RootFilesystems(tmp_path / "runtime")


async def run(runtime: LocalRuntime, root: str, *lines: str) -> list[str]:
    """What these print in a machine with this root."""
    run_id = new_run_id()
    await runtime.start(run_id, Program(None, root=root, network="packages"), LIMITS)
    session = await runtime.session(run_id)
    said = []
    for line in lines:
        process = await session.processes.start(Command(("/bin/sh", "-c", f"exec 2>&1; {line}")))
        await session.processes.wait(process.id, timeout_sec=30)
        output = [each.data async for each in session.processes.output(process.id)]
        said.append(b"".join(output).decode().strip())
    await clear(runtime, run_id)
    return said


async def test_a_machine_has_the_files_of_its_environment_and_can_not_change_them(
    runtime: LocalRuntime, environments: RootFilesystems, tmp_path: Path
) -> None:
    """A few programs and no interpreter are enough."""
    layer = tar(*small_root(), member("etc/motd", b"an image of its own\n"))
    layout = oci_layout(tmp_path / "oci", layer, env=["GREETING=hello", "PATH=/opt/bin:/bin"])
    environments.add("small", layout, now=1.0)
    motd, listed, written, variables, kept, user = await run(
        runtime,
        "small",
        "cat /etc/motd",
        "ls /bin",
        "echo x > /etc/motd",
        'echo "$GREETING $PATH"',
        "echo x > /workspace/x && cat /workspace/x",
        "cat /etc/passwd",
    )
    assert motd == "an image of its own"
    assert listed.split() == ["cat", "ls", "sh", "sleep"]
    assert any(refusal in written for refusal in ("Read-only", "Permission denied"))
    assert variables.startswith("hello /workspace/.local/bin:/opt/bin:")
    assert kept == "x"
    assert any(line.startswith("user:") for line in user.splitlines())
    root = environments.root_of(environments.get("small"))
    assert (root / "etc/motd").read_bytes() == b"an image of its own\n"


async def test_one_that_runs_keeps_its_environment(
    runtime: LocalRuntime, environments: RootFilesystems, tmp_path: Path
) -> None:
    archive = tmp_path / "root.tar"
    archive.write_bytes(tar(*small_root(), member("etc/motd", b"one")))
    environments.add("small", archive, now=1.0)
    run_id = new_run_id()
    await runtime.start(run_id, Program(None, root="small"), LIMITS)
    with pytest.raises(EnvironmentInUseError):
        environments.remove("small")
    archive.write_bytes(tar(*small_root(), member("etc/motd", b"two")))
    environments.add("small", archive, now=1.0)
    session = await runtime.session(run_id)
    read = [piece async for piece in session.files.read("/etc/motd")]
    assert b"".join(read) == b"one"
    assert await run(runtime, "small", "cat /etc/motd") == ["two"]
    await runtime.stop(run_id)
    environments.remove("small")
    with pytest.raises(EnvironmentMissingError):
        await runtime.start(new_run_id(), Program(None, root="small"), LIMITS)


@pytest.mark.torture
async def test_a_debian_is_an_environment(
    runtime: LocalRuntime, environments: RootFilesystems, tmp_path: Path
) -> None:
    if which("mmdebstrap") is None:
        subprocess.run(["apt-get", "install", "-y", "-qq", "mmdebstrap"], check=True)
    archive = tmp_path / "debian.tar"
    subprocess.run(
        ["mmdebstrap", "--variant=minbase", "--include=python3", "bookworm", str(archive)],
        check=True,
    )
    environments.add("debian", archive, now=1.0)
    version, release = await run(runtime, "debian", "python --version", "cat /etc/debian_version")
    assert version.startswith("Python 3.11")
    assert release.startswith("12")

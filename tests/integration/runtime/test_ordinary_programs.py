"""Programs that people run run in sandboxes: browsers, Java, wheels with native code, development
servers, two processes of one Procfile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import FileChanges, Files, IsolationMode, Limits, Program, RunId
from sandyard.runtime.repositories import builtin_files
from sandyard.runtime.sessions.ports import Session
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import end_all
from tests.support.runtime.sessions import pieces, shell
from tests.support.services.package_indexes import downloaded_wheels

LIMITS = Limits(
    cpu=1, memory_bytes=1 << 30, processes=256, storage_bytes=512 << 20, max_running_sec=600
)
ISOLATIONS: tuple[IsolationMode, ...] = ("bubblewrap", "gvisor")
RUN = RunId("sandbox", "box", "1")
PAGE = "data:text/html,<p id=answer></p><script>answer.textContent=6*7</script>"
BROWSER = "chromium --headless --no-sandbox --disable-gpu --dump-dom"
SIZE = """
import os
memory = open("/proc/meminfo").read().split()[1]
processors = open("/proc/cpuinfo").read().count("processor\t")
print(int(memory) >> 10, len(os.sched_getaffinity(0)), processors)
"""
"""What `free`, `nproc` and Node read."""
TWO = Program(
    Files(
        {
            "Procfile": b"worker: while :; do echo beat >> beats; sleep 0.1; done # for ever\n"
            b"web: exec python3 -m http.server $PORT --bind 127.0.0.1\n"
            b"release: echo never > released\n"
        }
    )
)


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path / "runtime", LocalOptions())
    yield runtime
    await end_all(runtime)


@asynccontextmanager
async def machine(
    runtime: LocalRuntime,
    isolation: IsolationMode,
    program: Program | None = None,
    limits: Limits = LIMITS,
) -> AsyncIterator[Session]:
    program = program or Program(None)
    await runtime.start(RUN, replace(program, isolation=isolation), limits)
    yield await runtime.session(RUN)


async def until_read(session: Session, script: str, wanted: bytes) -> None:
    async with asyncio.timeout(60):
        while wanted not in await shell(session, script):
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_it_sees_its_own_size_and_two_processes_of_a_procfile_run(
    runtime: LocalRuntime, isolation: IsolationMode
) -> None:
    async with machine(runtime, isolation, TWO) as session:
        await session.files.write("size.py", pieces(SIZE.encode()))
        assert (await shell(session, "python3 size.py")).split() == [b"1024", b"1", b"1"]
        assert await shell(session, "ulimit -v") == b"unlimited\n"
        await until_read(session, "cat beats", b"beat\nbeat\n")
        assert b"beats" in await shell(session, "curl -s --noproxy '*' localhost:8080/")
        # One that ends takes the others with it, and all are started again.
        await shell(session, "rm beats; pkill -f [h]ttp.server")
        await until_read(session, "cat beats; true", b"beat\n")
        assert b"released" not in await shell(session, "ls")


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_java_takes_a_quarter_of_its_machine_for_its_heap(
    runtime: LocalRuntime, isolation: IsolationMode
) -> None:
    async with machine(runtime, isolation) as session:
        said = await shell(session, "java -XX:+PrintFlagsFinal -version 2>&1")
        [heap] = [int(line.split()[3]) for line in said.splitlines() if b" MaxHeapSize " in line]
        assert b"OpenJDK" in said
        assert heap == LIMITS.memory_bytes // 4


@pytest.mark.parametrize(
    "isolation", ["bubblewrap", pytest.param("gvisor", marks=pytest.mark.torture)]
)
async def test_a_browser_renders_a_page(runtime: LocalRuntime, isolation: IsolationMode) -> None:
    async with machine(runtime, isolation) as session:
        async with asyncio.timeout(120):
            page = await shell(session, f"{BROWSER} '{PAGE}' 2>/dev/null")
        assert b'<p id="answer">42</p>' in page


@pytest.mark.parametrize(
    "isolation", [pytest.param("bubblewrap", marks=pytest.mark.torture), "gvisor"]
)
async def test_a_wheel_with_native_code_is_installed(
    runtime: LocalRuntime, isolation: IsolationMode
) -> None:
    async with machine(runtime, isolation) as session:
        for name, content in downloaded_wheels("flask").items():
            await session.files.write(f"wheels/{name}", pieces(content))
        install = "/usr/bin/python3 -m pip install -q --user --break-system-packages --no-index"
        await shell(session, f"{install} --find-links wheels markupsafe")
        native = "import markupsafe._speedups as native; print(native.__file__)"
        assert b".so" in await shell(session, f'/usr/bin/python3 -c "{native}"')


@pytest.mark.torture
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize(
    ("name", "script", "wanted"),
    [
        ("browser", "print(app.text_of(app.HELLO))", b"Hello from a browser"),
        ("analysis", "import sys; sys.stdout.buffer.write(app.chart())", b"PNG"),
    ],
)
async def test_what_a_template_is_for_works(
    runtime: LocalRuntime, isolation: IsolationMode, name: str, script: str, wanted: bytes
) -> None:
    files = builtin_files(f"builtin:{name}")
    limits = replace(LIMITS, storage_bytes=3 << 30)
    async with machine(runtime, isolation, limits=limits) as session:
        await session.files.apply(FileChanges(written=files))
        for wheel, content in downloaded_wheels(
            *files["requirements.txt"].decode().split()
        ).items():
            await session.files.write(f"wheels/{wheel}", pieces(content))
        install = "/usr/bin/python3 -m pip install -q --user --break-system-packages --no-index"
        await shell(session, f"{install} --find-links wheels -r requirements.txt")
        async with asyncio.timeout(180):
            made = await shell(session, f"/usr/bin/python3 -c 'import app; {script}' 2>/dev/null")
        assert wanted in made

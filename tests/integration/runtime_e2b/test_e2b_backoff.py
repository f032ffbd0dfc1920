"""A machine at E2B that refuses files or commands is left alone for a while, and it alone."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sandyard.kit.clock import SystemClock
from sandyard.kit.errors import UnavailableError
from sandyard.runtime.e2b.control import E2bControl
from sandyard.runtime.e2b.errors import translation
from sandyard.runtime.e2b.machines import E2bMachines as Machines
from sandyard.runtime.e2b.machines import E2bOptions
from sandyard.runtime.model import MachineSpec
from sandyard.runtime.remote.backoff import Backoff
from sandyard.runtime.sessions.model import Command
from sandyard.runtime.sessions.ports import Session
from tests.support.clocks import ManualClock
from tests.support.e2b.double import API_KEY
from tests.support.e2b.machines import E2bMachines
from tests.support.runtime.programs import LIMITS, new_run_id
from tests.support.runtime.sessions import pieces, read_all

Call = Callable[[Session], Awaitable[object]]


@pytest.fixture
def machines(double: E2bMachines, tmp_path: Path, clock: ManualClock) -> Machines:
    """Whose pauses are longer than any call waits, on a clock that the test moves."""
    backoff = Backoff(first_sec=100, longest_sec=200, now=clock.now, chance=lambda: 1.0)
    control = E2bControl(
        API_KEY,
        domain="e2b.app",
        api_url=double.url,
        sandbox_url=double.url,
        pool=double.pool(backoff),
        translate=translation,
    )
    return Machines(tmp_path / "runtime", control, E2bOptions("here"), clock=SystemClock())


async def opened(machines: Machines) -> Session:
    up = await machines.create(new_run_id(), MachineSpec(LIMITS, lifetime_sec=600))
    return await machines.session(up.run_id)


async def write(session: Session) -> object:
    return await session.files.write("file", pieces(b"text"))


async def stat(session: Session) -> object:
    return await session.files.stat("/workspace")


async def run(session: Session) -> object:
    return await session.processes.start(Command(("true",)))


async def read(session: Session) -> object:
    return await read_all(session, "file")


INSIDE = ("upload", "download", "run")


KINDS = (
    "rate_limited",
    *(pytest.param(kind, marks=pytest.mark.torture) for kind in ("error", "unavailable")),
)


@pytest.mark.parametrize(
    ("operation", "call"), [("upload", write), ("run", stat), ("run", run), ("download", read)]
)
@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_sent_nothing_before_the_pause_is_over(
    double: E2bMachines,
    machines: Machines,
    clock: ManualClock,
    operation: str,
    call: Call,
    kind: str,
) -> None:
    refusing, other = await opened(machines), await opened(machines)
    for each in (refusing, other):
        await write(each)
    double.inject(kind, operation, times=1)
    if (kind, operation) == ("unavailable", "run"):
        double.inject(kind, "health", times=1)
    with pytest.raises(UnavailableError) as refused:
        await call(refusing)
    assert (refused.value.code == "E2B_RATE_LIMITED") == (kind == "rate_limited")
    double.calm()
    double.reset_counts()
    for again in (write, stat, run, read):
        with pytest.raises(UnavailableError):
            await again(refusing)
    assert not any(double.calls[each] for each in INSIDE)
    assert not double.calls["get"], "whether it runs is not asked either"
    await call(other)
    clock.advance(101)
    await call(refusing)


async def test_an_output_that_is_followed_goes_on(double: E2bMachines, machines: Machines) -> None:
    session = await opened(machines)
    command = Command(("sh", "-c", "echo one; read line; echo $line"), has_input=True)
    process = await session.processes.start(command)
    lines = session.processes.output(process.id, follow=True)
    assert (await anext(lines)).data == b"one\n"
    await session.processes.write_input(process.id, b"two\n")
    double.inject("rate_limited", "upload", times=1)
    with pytest.raises(UnavailableError):
        await write(session)
    assert (await anext(lines)).data == b"two\n"
    await lines.aclose()


async def test_a_process_that_takes_no_input_is_no_refusal(machines: Machines) -> None:
    session = await opened(machines)
    process = await session.processes.start(Command(("sleep", "100"), has_input=True))
    await session.processes.close_input(process.id)
    await session.processes.close_input(process.id)
    await stat(session)

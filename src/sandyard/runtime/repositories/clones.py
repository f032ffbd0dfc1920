"""Clones a repository into a machine, through an egress opened for it."""

from sandyard.runtime.errors import AddressRefusedError, CloneFailedError, CommandRefusedError
from sandyard.runtime.machine_ports import Machines
from sandyard.runtime.model import Repository, RunId
from sandyard.runtime.repositories.git import (
    GIT_ENVIRONMENT,
    GIT_MISSING,
    clone_command,
    clone_failure,
    clone_too_slow,
    credentials,
)
from sandyard.runtime.sessions.model import Command, Process
from sandyard.runtime.sessions.ports import Session

_KILL = 9


async def clone(
    machines: Machines, run_id: RunId, session: Session, source: Repository, *, timeout_sec: float
) -> None:
    """Clone into the workspace. Raises CloneFailedError."""
    async with machines.egress(run_id) as egress:
        environment = GIT_ENVIRONMENT | dict(egress.environment)
        environment |= credentials(source.url, source.token)
        words = clone_command(source.url, protocol="https", ref=source.ref)
        try:
            done = await _run(session, Command(tuple(words), environment), timeout_sec=timeout_sec)
        except TimeoutError as error:
            raise CloneFailedError(clone_too_slow(timeout_sec)) from error
        except CommandRefusedError as error:
            raise CloneFailedError(GIT_MISSING) from error
        if not done.exit_code:
            return
        if (host := await egress.refused()) is not None:
            raise AddressRefusedError(
                f"The host {host!r} has a private address. Use a public host."
            )
        raise CloneFailedError(clone_failure(await _stderr(session, done)))


async def _run(session: Session, command: Command, *, timeout_sec: float) -> Process:
    """The command once it has ended. On timeout it is killed, and TimeoutError raised."""
    process = await session.processes.start(command)
    done = await session.processes.wait(process.id, timeout_sec=timeout_sec)
    if done.is_running:
        await session.processes.signal(process.id, _KILL)
        raise TimeoutError
    return done


async def _stderr(session: Session, process: Process) -> str:
    written = [
        output.data
        async for output in session.processes.output(process.id)
        if output.stream == "stderr"
    ]
    return b"".join(written).decode(errors="replace").strip()

"""The connections into machines at E2B."""

from sandyard.runtime.e2b.control import E2bControl
from sandyard.runtime.errors import NotRunningError
from sandyard.runtime.model import RunId
from sandyard.runtime.remote.connection import Connection
from sandyard.runtime.remote.machines import MachineAccess
from sandyard.runtime.remote.session import RemoteSession


class Connections:
    """Connects to each machine once, and again when the connection was lost."""

    def __init__(self, control: E2bControl) -> None:
        self._control = control
        self._sessions: dict[str, RemoteSession] = {}

    async def to_running(self, sandbox_id: str, run_id: RunId) -> RemoteSession:
        """Does not resume a paused machine. Raises NotRunningError."""
        if sandbox_id not in self._sessions:
            if await self._control.state(sandbox_id) != "running":
                raise NotRunningError
            return self.add(await self._control.connect(sandbox_id), run_id)
        return self._sessions[sandbox_id]

    async def resumed(
        self, sandbox_id: str, run_id: RunId, *, lifetime_sec: float
    ) -> RemoteSession:
        """A connection to the machine, which lives at least this long."""
        sandbox = await self._control.connect(sandbox_id, lifetime_sec=lifetime_sec)
        return self.add(sandbox, run_id)

    def add(self, access: MachineAccess, run_id: RunId) -> RemoteSession:
        sandbox_id = access.machine_id

        async def is_running() -> bool:
            return await self._control.state(sandbox_id) == "running"

        connection = Connection(
            self._control.envd(access),
            run=str(run_id),
            timeout_sec=self._control.timeouts.command_sec,
            translate=self._control.translate,
            is_running=is_running,
        )
        session = RemoteSession(connection, access.host, proxy_url=self._control.sandbox_url)
        self._sessions[sandbox_id] = session
        return session

    def drop(self, sandbox_id: str) -> None:
        self._sessions.pop(sandbox_id, None)

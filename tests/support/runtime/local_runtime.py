"""The local runtime as the tests use it. Knows only the standard library, as `programs` does."""

from contextlib import suppress
from pathlib import Path

from sandyard.kit.clock import SystemClock
from sandyard.runtime.local.records.run_folder import LocalRunFolder, VolumeKind
from sandyard.runtime.local.server.machines import LocalMachines
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import RunId, Running
from sandyard.runtime.programs.runner import ProgramRunner
from sandyard.runtime.programs.start import ProgramTimeouts
from sandyard.runtime.store.archives import ArchiveFolder

_ONE_REQUEST = "{method} {target} HTTP/1.0\r\nHost: sandbox\r\nContent-Length: {length}\r\n\r\n"


class LocalRuntime(ProgramRunner):
    def __init__(
        self,
        folder: Path,
        options: LocalOptions | None = None,
        *,
        listen_timeout_sec: float = 20,
        prepare_timeout_sec: float = 60,
    ) -> None:
        clock, options = SystemClock(), options or LocalOptions()
        self.has_own_kernel = options.isolation == "gvisor"
        self._local = LocalMachines(folder, options, clock)
        timeouts = ProgramTimeouts(
            prepare_timeout_sec=prepare_timeout_sec, listen_timeout_sec=listen_timeout_sec
        )
        self.archives = ArchiveFolder(folder / "archives")
        super().__init__(self._local, self._local.records, self.archives, timeouts, clock)

    def folder_of(self, run_id: RunId) -> LocalRunFolder:
        return LocalRunFolder(self._local.records.path_of(run_id))

    def workspace_of(self, run_id: RunId) -> Path:
        """Where its files are on this machine, while it runs: what is mounted there is seen by its
        supervisor alone."""
        folder = self.folder_of(run_id)
        return Path(f"/proc/{folder.supervisor_pid()}/root") / folder.workspace.relative_to("/")

    def processes_of(self, run_id: RunId) -> dict[int, str]:
        """The names of the host's processes that are this machine, its supervisor left out."""
        parents, names = {}, {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                pid, _, rest = stat.read_text().partition(" (")
                name, _, rest = rest.rpartition(") ")
                names[int(pid)], parents[int(pid)] = name, int(rest.split()[1])
        found = {self.folder_of(run_id).supervisor_pid()}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return {pid: names[pid] for pid in parents.keys() & found if parents[pid] in found}

    def volume_of(self, run_id: RunId) -> VolumeKind:
        spec = self.folder_of(run_id).spec()
        assert spec is not None
        return spec.volume

    async def fetch(
        self, running: Running, body: bytes | None = None, *, target: str = "/"
    ) -> bytes:
        """What the program answers. Raises OSError if it answers nothing."""
        session = await self.session(running.run_id)
        connection = await session.ports.connect(running.port)
        method = "GET" if body is None else "POST"
        head = _ONE_REQUEST.format(method=method, target=target, length=len(body or b""))
        try:
            connection.writer.write(head.encode() + (body or b""))
            answer = await connection.reader.read()
        finally:
            connection.writer.close()
        if not answer:
            raise ConnectionResetError("nothing was answered")
        return answer.partition(b"\r\n\r\n")[2]

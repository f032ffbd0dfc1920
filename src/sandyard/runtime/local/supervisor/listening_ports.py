"""Finds the ports that a machine's programs listen on, from its network namespace."""

from contextlib import suppress
from pathlib import Path

from sandyard.runtime.local.host.socket_diagnosis import SocketDiagnosis
from sandyard.runtime.local.supervisor.agent_client import AgentClient

_LISTENING = "0A"
_TABLES = ("tcp", "tcp6")


class MachinePorts:
    """For the network of the process `pid`; reads /proc if there is no diagnosis."""

    def __init__(self, pid: int, diagnosis: SocketDiagnosis | None) -> None:
        self._pid = pid
        self._diagnosis = diagnosis

    def listening(self) -> list[int]:
        """The listening TCP ports, sorted."""
        if self._diagnosis is not None:
            with suppress(OSError):
                return self._diagnosis.listening_ports()
        return listening_ports(self._pid)


async def diagnose(agent: AgentClient) -> SocketDiagnosis | None:
    """The sockets of the agent's machine; None if the kernel does not report them."""
    packet = await agent.ask("diagnose_sockets", {})
    for descriptor in packet.descriptors:
        return SocketDiagnosis(descriptor)
    return None


def listening_ports(pid: int) -> list[int]:
    """For the network of this process."""
    found: set[int] = set()
    for table in _TABLES:
        try:
            rows = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        words = (row.split() for row in rows)
        found |= {int(word[1].rpartition(":")[2], 16) for word in words if word[3] == _LISTENING}
    return sorted(found)

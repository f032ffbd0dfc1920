"""Finds the ports that a machine's programs listen on, from its network namespace."""

from contextlib import suppress

from sandyard.runtime.guest.machine import listening
from sandyard.runtime.local.host.socket_diagnosis import SocketDiagnosis
from sandyard.runtime.local.supervisor.agent_client import AgentClient


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
        return listening(f"/proc/{self._pid}/net")


async def diagnose(agent: AgentClient) -> SocketDiagnosis | None:
    """The sockets of the agent's machine; None if the kernel does not report them."""
    packet = await agent.ask("diagnose_sockets", {})
    for descriptor in packet.descriptors:
        return SocketDiagnosis(descriptor)
    return None

"""A machine's egress where the kernel lacks what programs without a proxy need."""

from pathlib import Path
from typing import Any

from sandyard.runtime.local.agent import processes
from sandyard.runtime.local.agent.network import OpenedNetwork
from sandyard.runtime.local.ipc.packets import Packet
from sandyard.runtime.local.supervisor.machine_egress import MachineEgress
from sandyard.runtime.local.supervisor.process_groups import Group
from tests.support.servers.connections import connected
from tests.unit.runtime.local.storage.test_shared_files import add_run


class OwnAgent:
    """Listens on this machine's loopback, at any port."""

    port = 0

    async def ask(
        self,
        operation: str,
        arguments: dict[str, Any],  # noqa: ARG002
        descriptors: tuple[int, ...] = (),  # noqa: ARG002
    ) -> Packet:
        assert operation == "listen"
        answer = processes.listen(port=0)
        self.port = answer.result
        return Packet({"result": answer.result}, descriptors=answer.descriptors)

    def group(self, pid: int) -> Group:
        raise AssertionError(pid)

    def close(self) -> None: ...


async def test_the_proxy_works_and_the_log_says_what_is_missing(tmp_path: Path) -> None:
    folder = add_run(tmp_path)
    spec = folder.spec()
    assert spec is not None
    notes: list[str] = []
    own: set[int] = set()
    egress, agent = MachineEgress(folder, spec, own=own, note=notes.append), OwnAgent()
    await egress.open(agent, OpenedNetwork(missing="Operation not supported"))
    try:
        line = "only the HTTP proxy leads to the network: Operation not supported"
        assert notes == [f"sandyard: {line}"]
        async with connected(agent.port) as (reader, writer):
            writer.write(b"CONNECT example.org:443 HTTP/1.1\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 403 blocked: example.org")
    finally:
        await egress.close()

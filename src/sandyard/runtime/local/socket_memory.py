"""What the kernel holds for a machine's sockets: in no process's sum, and any amount of it.

Each socket holds little, for its buffers can't be enlarged in a machine (`seccomp`, `namespaces`);
how many there are is told for the whole network, and what each holds by its diagnosis.
"""

import os

from sandyard.runtime.local.socket_diagnosis import SocketDiagnosis

_FEW = 32
"""So many hold too little to be looked at one by one."""
_LOST_BYTES = 256 << 10
"""The most that a socket holds which is closed, while another has not read what it sent."""


class SocketMemory:
    """Of the network that the process `pid` is in, and that the diagnosis is of."""

    def __init__(self, pid: int, diagnosis: SocketDiagnosis) -> None:
        """Raises OSError."""
        self._diagnosis = diagnosis
        self._counts = os.open(f"/proc/{pid}/net/sockstat", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._counts)

    def held_bytes(self) -> int:
        """Raises OSError."""
        counts = _counts(os.pread(self._counts, 4096, 0))
        if counts.get("sockets", 0) <= _FEW:
            return 0
        unix = self._diagnosis.unix_bytes()
        others = counts.get("TCP", 0) + counts.get("UDP", 0)
        lost = max(0, counts["sockets"] - len(unix) - others)
        inet = self._diagnosis.inet_bytes() if others > _FEW else []
        return sum(unix) + sum(inet) + lost * _LOST_BYTES


def _counts(text: bytes) -> dict[str, int]:
    """How many sockets there are, by kind: `sockets: used 5`, `TCP: inuse 2 orphan 0 …`."""
    lines = (line.split() for line in text.decode().splitlines())
    return {words[0].rstrip(":"): int(words[2]) for words in lines if len(words) > 2}

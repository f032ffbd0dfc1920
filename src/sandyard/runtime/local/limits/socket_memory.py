"""Kernel memory of a machine's sockets: in no process's total, and unlimited by itself.

Each socket holds little, because a machine can't enlarge its buffers (`seccomp`, `namespaces`);
their number is known for the whole network, and the bytes of each from its diagnosis.
"""

import os

from sandyard.runtime.local.host.socket_diagnosis import SocketDiagnosis

_FEW = 32
"""Up to this many hold too little to be examined one by one."""
_LOST_BYTES = 256 << 10
"""The most held by a closed socket while its peer has not read what it sent."""


class SocketMemory:
    """For the network of the process `pid`, which is that of the diagnosis."""

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
    """The number of sockets by kind: `sockets: used 5`, `TCP: inuse 2 orphan 0 …`."""
    lines = (line.split() for line in text.decode().splitlines())
    return {words[0].rstrip(":"): int(words[2]) for words in lines if len(words) > 2}

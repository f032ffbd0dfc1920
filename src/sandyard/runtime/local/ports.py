"""Which ports the programs of a machine listen on, as its network namespace tells."""

from pathlib import Path

_LISTENING = "0A"
_TABLES = ("tcp", "tcp6")


def listening_ports(pid: int) -> list[int]:
    """The TCP ports in the network namespace of this process, in order."""
    found: set[int] = set()
    for table in _TABLES:
        try:
            rows = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        words = (row.split() for row in rows)
        found |= {int(word[1].rpartition(":")[2], 16) for word in words if word[3] == _LISTENING}
    return sorted(found)

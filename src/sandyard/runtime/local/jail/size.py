"""What a machine's `/proc` says of its size, in place of the host's."""

from collections.abc import Mapping
from pathlib import Path

_PROCESSORS, _MEMORY = Path("/proc/cpuinfo"), Path("/proc/meminfo")
_ALL = ("MemTotal", "MemFree", "MemAvailable")
_NONE = ("Buffers", "Cached", "SwapCached", "Active", "Inactive", "SwapTotal", "SwapFree", "Shmem")
_NOT_COUNTED = ("Slab", "SReclaimable", "SUnreclaim")


def size_files(*, cpu: float, memory_bytes: int) -> Mapping[str, str]:
    """Files by their paths inside. They say what there is, not what is free."""
    sizes = dict.fromkeys(_ALL, memory_bytes // 1024) | dict.fromkeys((*_NONE, *_NOT_COUNTED), 0)
    lines = [f"{f'{name}:':<15} {size:>8} kB\n" for name, size in sizes.items()]
    processors = _PROCESSORS.read_text().split("\n\n")[: max(1, int(cpu))]
    return {
        str(_MEMORY): "".join(lines),
        str(_PROCESSORS): "\n\n".join(each.rstrip("\n") for each in processors) + "\n\n",
    }

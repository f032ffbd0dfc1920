"""Names that resolve as a test says, for all processes that it starts."""

import asyncio
import ctypes
import os
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sandyard.runtime.local.server.supervisors import FORKS

_NEW_MOUNTS, _SLAVE_ALL_BELOW, _BIND = 0x00020000, 0x80000 | 0x4000, 4096
_HOSTS = b"/etc/hosts"


class OwnNames:
    def __init__(self, file: Path) -> None:
        self._file = file

    def set(self, addresses: Mapping[str, str]) -> None:
        """From now on; the file stays the same one, because it is mounted."""
        lines = "".join(f"{address} {name}\n" for name, address in addresses.items())
        self._file.write_text(f"127.0.0.1 localhost\n{lines}")


async def with_own_names(folder: Path, scenario: Callable[[OwnNames], Awaitable[None]]) -> None:
    """Run it in a thread, and so with processes, whose `/etc/hosts` is the test's own."""
    names = OwnNames(folder / "hosts")
    names.set({})

    def run() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        _require(libc.unshare(_NEW_MOUNTS))
        _require(libc.mount(None, b"/", None, ctypes.c_ulong(_SLAVE_ALL_BELOW), None))
        source = bytes(folder / "hosts")
        _require(libc.mount(source, _HOSTS, None, ctypes.c_ulong(_BIND), None))

        FORKS.close()  # another one has the names
        try:
            asyncio.run(whole())
        finally:
            FORKS.close()

    async def whole() -> None:
        await scenario(names)

    with ThreadPoolExecutor(1) as apart:
        await asyncio.wrap_future(apart.submit(run))


def _require(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

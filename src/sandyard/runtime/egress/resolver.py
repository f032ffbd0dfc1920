"""Names are resolved in separate threads: those of a hostile program may take forever."""

import asyncio
import socket
import threading
from typing import Protocol

_AT_ONCE = 8


class Resolver(Protocol):
    async def addresses(self, host: str, port: int) -> list[str]:
        """All current addresses of the name. Raises OSError."""


class NameResolver:
    """At most a few at once; one that never ends keeps its slot, but nothing waits for it."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Raises OSError."""
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()

        def tell(result: list[str] | OSError) -> None:
            self._places.release()
            if found.done():
                return
            if isinstance(result, OSError):
                found.set_exception(result)
            else:
                found.set_result(result)

        def look_up() -> None:
            result = _look_up(host, port)
            try:
                loop.call_soon_threadsafe(tell, result)
            except RuntimeError:
                return  # the loop has ended

        threading.Thread(target=look_up, daemon=True).start()
        return await found


def _look_up(host: str, port: int) -> list[str] | OSError:
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return error if isinstance(error, OSError) else OSError(str(error))
    return list(dict.fromkeys(str(entry[4][0]).split("%")[0] for entry in entries))

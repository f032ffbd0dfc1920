"""The network of one machine of E2B's double: its own, with a way in and few ways out.

Run in the machine's network: `python3 network.py FOLDER PORT…`. A connection to the socket
`FOLDER/in` names a port of the machine in its first line, and is then connected to it. What is
connected to one of the PORTs inside goes to the socket `FOLDER/out`, with that port named.
"""

import asyncio
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def join(
    near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    await asyncio.gather(relay(near[0], far[1]), relay(far[0], near[1]))
    for _, writer in (near, far):
        writer.close()


async def enter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """To the port that is named."""
    port = int(await reader.readline())
    try:
        far = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.close()
        return
    await join((reader, writer), far)


async def leave(
    folder: Path, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    far = await asyncio.open_unix_connection(str(folder / "out"))
    far[1].write(f"{port}\n".encode())
    await join((reader, writer), far)


async def serve(folder: Path, ports: list[int]) -> None:
    for port in ports:
        await asyncio.start_server(partial(leave, folder, port), "127.0.0.1", port)
    ways_in = await asyncio.start_unix_server(enter, str(folder / "in"))
    print("ready", flush=True)  # noqa: T201 - who started it waits for this
    await ways_in.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), [int(port) for port in sys.argv[2:]]))

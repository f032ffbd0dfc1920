"""The gateway alone, before one public sandbox whose port is a server on this machine."""

import asyncio
import sys

from benchmarks import loops
from tests.support.servers.gateway import BOX, OWNER, gateway_server


async def serve(program_port: int) -> None:
    async with gateway_server(connections=10_000) as server:
        server.boxes.add(BOX, OWNER, port=3000, at=program_port, is_public=True)
        print(server.port, server.host(), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    loops.run(serve(int(sys.argv[1])))

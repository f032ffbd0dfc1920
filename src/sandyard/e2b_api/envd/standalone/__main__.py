"""`python -m sandyard.e2b_api.envd.standalone`: serves this machine's files and processes."""

import argparse
import asyncio
import os
import sys

from sandyard.e2b_api.envd.app import Envd
from sandyard.e2b_api.envd.connect import ErrorBoundary
from sandyard.e2b_api.envd.standalone.machine import ThisMachine
from sandyard.e2b_api.envd.standalone.server import serve
from sandyard.kit.sizes import MESSAGE_BYTES

_TOKEN = "ENVD_ACCESS_TOKEN"  # noqa: S105 - the name of a variable
_MOST_BYTES = 1 << 40
_MOST_STREAMS = 1000


async def run(host: str, port: int, token: str) -> None:
    """Prints `ready PORT` once it serves."""
    envd = Envd(
        ThisMachine(token),
        upload_bytes=_MOST_BYTES,
        message_bytes=MESSAGE_BYTES,
        streams=_MOST_STREAMS,
    )
    app = ErrorBoundary(envd)
    server = await serve(app, host, port)
    sys.stdout.write(f"ready {server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104 - a machine of its own
    parser.add_argument("--port", type=int, default=49983)
    options = parser.parse_args()
    token = os.environ.pop(_TOKEN, None)  # commands must not inherit it
    if not token:
        parser.error(f"set {_TOKEN} to the access token that calls must send")
    asyncio.run(run(options.host, options.port, token))


if __name__ == "__main__":
    main()

"""E2B's double as a process.

`python -m tests.support.e2b.double_process --port N [--api-key KEY]`.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sandyard.kit.free_ports import free_port
from tests.support.e2b.double import API_KEY, E2bDouble
from tests.support.servers.fork_server import ForkedProcess
from tests.support.servers.processes import clean_environment, wait_until_ready


@contextmanager
def e2b_double_process(api_key: str = API_KEY) -> Iterator[str]:
    """A double as a process of its own; gives its URL."""
    port = free_port()
    process = ForkedProcess(
        [
            sys.executable,
            "-m",
            "tests.support.e2b.double_process",
            "--port",
            str(port),
            "--api-key",
            api_key,
        ],
        env=clean_environment(),
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(url, process, "/_double")
        yield url
    finally:
        process.terminate()
        process.wait(10)


async def _serve(port: int, api_key: str) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    double = E2bDouble(api_key)
    await double.start(port)
    try:
        await stopping.wait()
    finally:
        await double.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.e2b.double_process", description=__doc__
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--api-key", default=API_KEY)
    options = parser.parse_args()
    asyncio.run(_serve(options.port, options.api_key))


if __name__ == "__main__":
    main()

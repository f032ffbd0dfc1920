"""Finds a free port for a process that is about to start."""

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """A port that no process listens on, below the ephemeral range."""
    while True:
        port = random.randrange(10_000, 32_000)  # noqa: S311 - no secret
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port

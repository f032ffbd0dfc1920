"""The network of a machine is opened once, in a namespace of its own, and says what it lacks."""

import json
import subprocess
import sys
from pathlib import Path

import sandyard

_SOURCES = Path(sandyard.__file__).parent.parent
_NEW_NETWORK, _NEW_USER = 0x40000000, 0x10000000
_OPEN = """
import ctypes, json, socket, sys
sys.path.insert(0, {sources!r})
from sandyard.runtime.local.agent.network import open_network
assert ctypes.CDLL(None).unshare({flags}) == 0
first = open_network()
[listener, queries] = first.sockets
made = socket.create_connection(("203.0.113.9", 4321), 5)
accepted, _ = listener.accept()
asking = socket.socket(type=socket.SOCK_DGRAM)
asking.connect(("192.0.2.53", 53))
asking.send(b"name")
again = open_network()
print(json.dumps([first.missing, *accepted.getsockname(), made.getsockname()[0],
    queries.recv(100).decode(), again.missing, len(again.sockets)]))
"""


def test_every_connection_and_query_arrives() -> None:
    """Also for a user without any right."""
    for flags in (_NEW_NETWORK, _NEW_NETWORK | _NEW_USER):
        code = _OPEN.format(sources=str(_SOURCES), flags=flags)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        missing, host, port, own, query, reason, sockets = json.loads(done.stdout)
        assert missing is None
        assert (host, port, own, query) == ("203.0.113.9", 4321, "198.18.0.2", "name")
        assert reason
        assert sockets == 0

"""A server that dies while commands stream: they go on, and who reconnects finds them."""

import subprocess
import sys
from pathlib import Path

from sandyard.kit.free_ports import free_port
from tests.e2e.e2b_api.conftest import ROOMY, E2bServer, e2b_key
from tests.support.servers.processes import clean_environment, sandyard_serve
from tests.support.servers.users import signed_up

BEGIN = """
from e2b import Sandbox
sandbox = Sandbox.create(timeout=300)
told = lambda line: print(sandbox.sandbox_id, handle.pid, flush=True)
handle = sandbox.commands.run(
    "echo begun; until test -e go; do sleep 0.05; done; echo went on", background=True
)
handle.wait(on_stdout=told)
"""
RECONNECT = """
import os
import sys
from e2b import Sandbox
sandbox = Sandbox.connect(sys.argv[1])
handle = sandbox.commands.connect(int(sys.argv[2]))
sandbox.files.write("go", "")
assert handle.wait().stdout == "went on\\n"
assert sandbox.kill()
os._exit(0)  # the SDK's HTTP library now and then aborts while Python ends
"""


def test_commands_outlive_a_server_that_is_killed(tmp_path: Path) -> None:
    port = free_port()
    with sandyard_serve(tmp_path / "data", environment=ROOMY, port=port) as server:
        ann = signed_up(server, "ann", mail=1)
        e2b = E2bServer(server, {"ann": e2b_key(ann)}, {"ann": ann})
        environment = clean_environment(e2b.environment())
        with subprocess.Popen(
            [sys.executable, "-c", BEGIN],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as streaming:
            assert streaming.stdout is not None
            sandbox_id, pid = streaming.stdout.readline().decode().split()
            server.kill()
            streaming.communicate(timeout=60)
            assert streaming.returncode != 0, "whoever streamed is told"
    with sandyard_serve(tmp_path / "data", environment=ROOMY, port=port):
        done = subprocess.run(
            [sys.executable, "-c", RECONNECT, sandbox_id, pid],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr

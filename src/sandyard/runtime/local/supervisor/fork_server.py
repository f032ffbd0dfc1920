"""The process from which supervisors are forked, with their modules already loaded.

`python -m sandyard.runtime.local.supervisor.fork_server <room for a name>`, with a packet socket as
descriptor 3. Like a supervisor it has none of the server's secrets. It has no state about machines,
and ends with the server that started it; the supervisors that it forked do not.
"""

import concurrent.futures.thread  # noqa: F401 - asyncio loads it when it needs it first
import fcntl
import gc
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress

from sandyard.runtime.local.host.processes import rename_process
from sandyard.runtime.local.ipc.packets import Packet, receive_now, send_now
from sandyard.runtime.local.records.run_folder import START_PIPE
from sandyard.runtime.local.supervisor.supervisor import supervise

CHANNEL = 3
SUPERVISOR = "sandyard.runtime.local.supervisor.supervisor"


def serve(channel: socket.socket) -> None:
    """Fork a supervisor for each request; return when the server has gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended children are not waited for
    gc.collect()
    gc.freeze()  # forked children then copy no pages for the garbage collector
    while (packet := receive_now(channel)) is not None:
        pid = os.fork()
        if not pid:
            _become_supervisor(channel, packet)
        packet.close()
        with suppress(BrokenPipeError):
            send_now(channel, {"pid": pid})


def _become_supervisor(channel: socket.socket, packet: Packet) -> None:
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log, lock, start_pipe = packet.descriptors
        channel.detach()
        # The first one above the reserved descriptors.
        start_pipe = fcntl.fcntl(start_pipe, fcntl.F_DUPFD_CLOEXEC, START_PIPE + 1)
        for source, target in ((log, 1), (log, 2), (lock, CHANNEL)):
            os.dup2(source, target)
        packet.close()
        os.dup2(start_pipe, START_PIPE)
        os.close(start_pipe)
        folder = str(packet.message["folder"])
        rename_process(sys.executable, "-S", "-m", SUPERVISOR, folder)
        supervise(folder, is_closing=bool(packet.message["is_closing"]))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=CHANNEL) as server:
        os.set_inheritable(CHANNEL, False)  # noqa: FBT003 - its own way
        serve(server)

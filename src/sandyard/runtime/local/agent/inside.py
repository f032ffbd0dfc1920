"""The first process of a machine with its own kernel (gVisor): starts processes, connects to ports.

Descriptors can be sent into such a machine, but none out of it. So each stream of a process is a
socket that the supervisor sent, and a thread copies between it and the process's pipe or terminal:
what the machine's processes hold is inside alone. Before a checkpoint it closes all of these
sockets; woken by a signal after it, or after a restore, it connects to the supervisor again.
"""

import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NoReturn

from sandyard.runtime.guest import Paths, RefusedError
from sandyard.runtime.guest.channels import set_size
from sandyard.runtime.guest.machine import listening
from sandyard.runtime.local.agent import processes
from sandyard.runtime.local.agent.streams import (
    Connection,
    Input,
    Output,
    Stream,
    detach,
    in_thread,
)
from sandyard.runtime.local.ipc.packets import Answer, Packet, packet_socket, receive_now, send_now

SOCKETS = "/run/sandyard/host"
"""Where the supervisor's sockets are, inside."""
CONTROL = "control"
WAKE = signal.SIGUSR1
"""Ends its wait after a checkpoint."""
ROOT, USER = 0, 1000
_AGAIN_SEC = 0.05
_CONNECT_SEC = 5


class Wake:
    """A wait of the main thread for a signal. The kernel may deliver it to another thread, which
    would leave a wait for a lock as it is: so it is for the byte that Python's handler writes."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.signal(WAKE, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def clear(self) -> None:
        os.set_blocking(self._reader, False)
        with suppress(BlockingIOError):
            while os.read(self._reader, 4096):
                pass
        os.set_blocking(self._reader, True)

    def wait(self) -> None:
        """Return when the signal has come since the last `clear`."""
        while WAKE not in os.read(self._reader, 4096):
            pass


class InsideAgent:
    def __init__(
        self,
        workspace: str,
        rlimits: dict[str, int],
        environment: dict[str, str],
        launcher: str | None,
    ) -> None:
        self._starters = {
            uid: processes.Starter(Paths(workspace), rlimits, environment, launcher, uid=uid)
            for uid in (USER, ROOT)
        }
        self._channel = packet_socket()
        self._sending = threading.Lock()
        self._starting = threading.Lock()
        self._is_connected = threading.Event()
        self._wake = Wake()
        self._terminals: dict[int, int] = {}
        self._streams: dict[int, list[list[Stream]]] = {}
        """Of each process, by the order in which its sockets come."""
        self._connections: list[Connection] = []
        self._connecting = threading.Lock()
        self._listeners: dict[int, str | None] = {}
        """The supervisor's socket for each port; none after a checkpoint, until it listens anew."""
        self._operations: dict[str, Callable[..., Answer]] = {
            "start": self._start,
            "attach": self._attach,
            "signal": self._signal,
            "resize": self._resize,
            "connect": self._connect,
            "listen": self._listen,
            "listening": lambda: Answer(listening("/proc/net")),
        }

    def run(self) -> None:
        """Serve the supervisor until it has gone."""
        in_thread(self._reap)
        name: str | None = CONTROL
        while name is not None:
            with self._sending:
                self._channel = packet_socket()
                self._channel.connect(f"{SOCKETS}/{name}")
            self._is_connected.set()
            self._send({"ready": os.getpid()})
            name = self._serve()

    def _serve(self) -> str | None:
        """After a checkpoint, the socket to connect to next."""
        with suppress(OSError):
            while (packet := receive_now(self._channel)) is not None:
                if packet.message["op"] == "detach":
                    self._detach()
                    return str(packet.message["arguments"]["name"])
                self._answer(packet)
        return None

    def _detach(self) -> None:
        """Close all sockets of the host, and wait until woken."""
        self._wake.clear()
        self._is_connected.clear()
        with self._starting:
            known = [each for streams in self._streams.values() for each in streams]
        detach([each for streams in known for each in streams])
        with self._connecting:
            for connection in self._connections:
                connection.close()
            self._connections.clear()
            self._listeners = dict.fromkeys(self._listeners)
        with self._sending:
            self._channel.close()
        self._wake.wait()

    def _answer(self, packet: Packet) -> None:
        message = packet.message
        number = message["number"]
        try:
            operation = self._operations[message["op"]]
            answer = operation(*packet.descriptors, **message["arguments"])
            self._send({"number": number, "result": answer.result})
        except RefusedError as refused:
            self._send({"number": number, "refused": refused.code, "message": str(refused)})
        except OSError as error:
            self._send({"number": number, "errno": error.errno or 0, "message": str(error)})

    def _send(self, message: dict[str, Any]) -> None:
        """Once it is connected."""
        self._is_connected.wait()
        with self._sending:
            send_now(self._channel, message)

    def _start(self, *ends: int, as_root: bool, **command: Any) -> Answer:
        with self._starting:
            try:
                answer = self._starters[ROOT if as_root else USER].start(**command)
            except BaseException:
                _close(ends)
                raise
            pid = answer.result["pid"]
            named = zip(answer.result["channels"], answer.descriptors, strict=True)
            self._streams[pid] = [self._streams_of(pid, *each) for each in named]
        return self._attach(*ends, pid=pid, result=answer.result)

    def _streams_of(self, pid: int, name: str, inner: int) -> list[Stream]:
        if name == "stdin":
            return [Input(inner)]
        if name == "terminal":
            self._terminals[pid] = os.dup(inner)
            return [Input(os.dup(inner)), Output(inner)]
        return [Output(inner)]

    def _attach(self, *ends: int, pid: int, result: Any = None) -> Answer:
        """Refused if the process has ended."""
        if pid not in self._streams:
            _close(ends)
            raise RefusedError("PROCESS_NOT_FOUND", str(pid))
        for end, streams in zip(ends, self._streams[pid], strict=True):
            with socket.socket(fileno=end) as outer:
                for stream in streams:
                    stream.attach(outer.dup())
        return Answer(result)

    def _signal(self, *, pid: int, number: int) -> Answer:
        with suppress(ProcessLookupError):
            os.killpg(pid, number)
        return Answer()

    def _resize(self, *, pid: int, columns: int, rows: int) -> Answer:
        if pid in self._terminals:
            set_size(self._terminals[pid], columns, rows)
        return Answer()

    def _reap(self) -> None:
        """Report the exits of processes; as the machine's first process it gets all orphans too."""
        while True:
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                time.sleep(_AGAIN_SEC)
                continue
            in_thread(self._report_exit, pid, os.waitstatus_to_exitcode(status))

    def _report_exit(self, pid: int, code: int) -> None:
        """After its output, even if a child of it goes on writing."""
        with self._starting:
            streams = self._streams.setdefault(pid, [])
        for stream in [each for both in streams for each in both]:
            stream.drain()
        with suppress(OSError):
            self._send({"exited": pid, "code": code})
        with self._starting:
            if self._streams.get(pid) is not streams:
                return  # another process has its number now
            del self._streams[pid]
            terminal = self._terminals.pop(pid, None)
        if terminal is not None:
            os.close(terminal)

    def _connect(self, outer: int, *, port: int) -> Answer:
        with socket.socket(fileno=outer) as end:
            made = socket.create_connection(("localhost", port), timeout=_CONNECT_SEC)
            made.settimeout(None)
            self._join(made, end.dup())
        return Answer()

    def _join(self, made: socket.socket, outer: socket.socket) -> None:
        with self._connecting:
            self._connections = [each for each in self._connections if not each.is_over]
            self._connections.append(Connection(made, outer))

    def _listen(self, *, port: int, name: str) -> Answer:
        """Connections to this port of the loopback go to the supervisor's socket of this name."""
        if port in self._listeners:  # since before a checkpoint
            self._listeners[port] = name
            return Answer(port)
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
        port = listener.getsockname()[1]
        self._listeners[port] = name
        in_thread(self._accept, listener, port)
        return Answer(port)

    def _accept(self, listener: socket.socket, port: int) -> None:
        while True:
            made, _ = listener.accept()
            outer = socket.socket(socket.AF_UNIX)
            with self._connecting:
                name = self._listeners[port]
                path = f"{SOCKETS}/{name}"
                try:
                    if name is None:
                        raise ConnectionRefusedError
                    outer.connect(path)
                except OSError:
                    made.close()
                    outer.close()
                    if name is not None and not os.path.exists(path):  # the supervisor closed it
                        del self._listeners[port]
                        listener.close()
                        return
                    continue
            self._join(made, outer)


def _close(descriptors: Iterable[int]) -> None:
    for each in descriptors:
        os.close(each)


def main(
    *,
    workspace: str,
    rlimits: dict[str, int],
    environment: dict[str, str],
    launcher: str | None,
    files: dict[str, str],
    links: dict[str, str],
) -> NoReturn:
    """Files and links, by path, are made in its folders in memory."""
    os.umask(0o022)
    for path in (*files, *links):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    for path, text in files.items():
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    for path, target in links.items():
        os.symlink(target, path)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which its children would inherit
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    InsideAgent(workspace, rlimits, environment, launcher).run()
    os._exit(0)

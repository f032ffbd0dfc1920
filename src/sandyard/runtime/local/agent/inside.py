"""The first process of a machine with its own kernel (gVisor): starts processes, connects to ports.

Descriptors can be sent into such a machine, but none out of it. So each stream of a process is a
socket that the supervisor sent, and a thread copies between it and the process's pipe or terminal:
what the machine's processes hold is inside alone.
"""

import os
import resource
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from sandyard.runtime.guest import Paths, RefusedError
from sandyard.runtime.guest.channels import set_size
from sandyard.runtime.guest.machine import listening
from sandyard.runtime.local.agent import processes
from sandyard.runtime.local.ipc.packets import Answer, Packet, packet_socket, receive_now, send_now

SOCKETS = "/run/sandyard/host"
"""Where the supervisor's sockets are, inside."""
CONTROL = "control"
ROOT, USER = 0, 1000
_AGAIN_SEC = 0.05
_DRAIN_SEC = 0.002
_CHUNK = 64 * 1024
_CONNECT_SEC = 5


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
        self._terminals: dict[int, int] = {}
        self._outlets: dict[int, list[_Outlet]] = {}
        self._operations: dict[str, Callable[..., Answer]] = {
            "start": self._start,
            "signal": self._signal,
            "resize": self._resize,
            "connect": _connect,
            "listen": _listen,
            "listening": lambda: Answer(listening("/proc/net")),
        }

    def run(self) -> None:
        """Serve the supervisor until it has gone."""
        self._channel.connect(f"{SOCKETS}/{CONTROL}")
        threading.Thread(target=self._reap, daemon=True).start()
        self._send({"ready": os.getpid()})
        with suppress(OSError):
            while (packet := receive_now(self._channel)) is not None:
                self._answer(packet)

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
        with self._sending:
            send_now(self._channel, message)

    def _start(self, *ends: int, as_root: bool, **command: Any) -> Answer:
        with self._starting:
            return self._started(ends, as_root=as_root, command=command)

    def _started(self, ends: Sequence[int], *, as_root: bool, command: Mapping[str, Any]) -> Answer:
        try:
            answer = self._starters[ROOT if as_root else USER].start(**command)
        except BaseException:
            for end in ends:
                os.close(end)
            raise
        pid = answer.result["pid"]
        named = zip(answer.result["channels"], answer.descriptors, ends, strict=True)
        for name, inner, end in named:
            outer = socket.socket(fileno=end)
            if name == "terminal":
                self._terminals[pid] = os.dup(inner)
            if name in ("stdin", "terminal"):
                _in_thread(_copy_in, outer.dup(), os.dup(inner))
            if name == "stdin":
                outer.close()
                os.close(inner)
            else:
                self._outlets.setdefault(pid, []).append(outlet := _Outlet(inner, outer))
                _in_thread(outlet.run)
        return answer

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
            _in_thread(self._report_exit, pid, os.waitstatus_to_exitcode(status))

    def _report_exit(self, pid: int, code: int) -> None:
        """After its output, even if a child of it goes on writing."""
        with self._starting:
            outlets, terminal = self._outlets.pop(pid, []), self._terminals.pop(pid, None)
        for outlet in outlets:
            outlet.drain()
        if terminal is not None:
            os.close(terminal)
        with suppress(OSError):
            self._send({"exited": pid, "code": code})


class _Outlet:
    """Copies a process's output to the supervisor."""

    def __init__(self, inner: int, outer: socket.socket) -> None:
        self._inner = inner
        self._outer = outer
        self._copying = threading.Lock()
        self._is_over = False

    def run(self) -> None:
        waiting = select.poll()
        waiting.register(self._inner, select.POLLIN)
        while waiting.poll() and self._copy():
            pass
        with suppress(OSError):
            self._outer.shutdown(socket.SHUT_RDWR)
        self._outer.close()

    def drain(self) -> None:
        """Return when all that was written by now has been sent."""
        waiting = select.poll()
        while True:
            with self._copying:
                if self._is_over:
                    return
                waiting.register(self._inner, select.POLLIN)
                if not waiting.poll(0):
                    return
            time.sleep(_DRAIN_SEC)

    def _copy(self) -> bool:
        with self._copying:
            try:
                data = os.read(self._inner, _CHUNK)
                self._outer.sendall(data)
            except OSError:  # a terminal whose last process has exited
                data = b""
            if not data:
                self._is_over = True
                os.close(self._inner)
            return bool(data)


def _in_thread(work: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=work, args=arguments, daemon=True).start()


def _copy_in(outer: socket.socket, inner: int) -> None:
    with outer, suppress(OSError):
        while data := outer.recv(_CHUNK):
            while data:
                data = data[os.write(inner, data) :]
    os.close(inner)


def _connect(outer: int, *, port: int) -> Answer:
    with socket.socket(fileno=outer) as end:
        made = socket.create_connection(("localhost", port), timeout=_CONNECT_SEC)
        made.settimeout(None)
        _join_sockets(made, end.dup())
    return Answer()


def _join_sockets(first: socket.socket, second: socket.socket) -> None:
    _in_thread(_pass, first.dup(), second.dup())
    _in_thread(_pass, second, first)


def _pass(source: socket.socket, target: socket.socket) -> None:
    with source, target, suppress(OSError):
        with suppress(ConnectionError):
            while data := source.recv(_CHUNK):
                target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def _listen(*, port: int, name: str) -> Answer:
    """Connections to this port of the loopback go to the supervisor's socket of this name."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    _in_thread(_accept, listener, f"{SOCKETS}/{name}")
    return Answer(listener.getsockname()[1])


def _accept(listener: socket.socket, path: str) -> None:
    while True:
        made, _ = listener.accept()
        outer = socket.socket(socket.AF_UNIX)
        try:
            outer.connect(path)
        except OSError:
            made.close()
            outer.close()
            if not os.path.exists(path):  # the supervisor has closed it
                listener.close()
                return
            continue
        _join_sockets(made, outer)


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

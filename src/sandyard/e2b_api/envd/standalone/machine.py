"""The machine that this process runs in, as the only one that calls act in."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from hmac import compare_digest
from pathlib import Path
from threading import Thread
from typing import Any

from sandyard.e2b_api.envd.machine import Credentials, UserSession
from sandyard.e2b_api.envd.paths import Account, known_user
from sandyard.e2b_api.errors import AccessTokenMissingError, LinkOverError
from sandyard.e2b_api.tokens import signature_of
from sandyard.kit.clock import SystemClock
from sandyard.kit.concurrency.tasks import Background
from sandyard.runtime.guest import Paths, RefusedError
from sandyard.runtime.guest.channels import open_pipes, open_terminal, take_terminal
from sandyard.runtime.local.agent.files import quick_operations, slow_operations
from sandyard.runtime.local.client.session import LocalSession
from sandyard.runtime.local.client.supervisor_client import Request, raise_refusal
from sandyard.runtime.local.ipc.packets import Answer, Packet, readable
from sandyard.runtime.local.supervisor.command_requests import CommandRequests, refused
from sandyard.runtime.local.supervisor.commands import CommandTable
from sandyard.runtime.local.supervisor.output import OutputThrottle
from sandyard.runtime.local.supervisor.process_groups import ProcessGroup
from sandyard.runtime.sessions.model import WORKSPACE

_PATHS = Paths(WORKSPACE)
"""All paths are this machine's own."""


class SystemClient:
    """With the rights of this process, as whose children processes run: they end with it."""

    def __init__(self) -> None:
        self._files = {**quick_operations(_PATHS), **slow_operations(_PATHS)}
        self._children = _Children()
        self.child_pids = self._children.pids
        self._requests = CommandRequests(self._children.table, self._children.table.start)

    def of_root(self) -> "SystemClient":
        return self

    async def ask(
        self,
        operation: str,
        arguments: dict[str, Any],
        *,
        data: bytes = b"",
        descriptors: tuple[int, ...] = (),
    ) -> Packet:
        with ExitStack() as connection:
            return await self._ask(operation, arguments, connection, data, descriptors)

    async def _ask(
        self,
        operation: str,
        arguments: dict[str, Any],
        connection: ExitStack,
        data: bytes = b"",
        descriptors: tuple[int, ...] = (),
    ) -> Packet:
        if operation in self._files:
            packet = await asyncio.to_thread(self._answer, operation, arguments, descriptors)
        else:
            packet = await self._requests.answer(
                self._children, operation, arguments, data, connection
            )
        raise_refusal(packet)
        return packet

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Request]:
        async def request(operation: str, arguments: dict[str, Any]) -> Packet:
            packet = await self._ask(operation, arguments, connection)
            if operation == "create_file":
                draft = packet.message["result"]["draft"]  # once committed, it is no longer there
                connection.callback(self._answer, "discard_file", {"draft": draft}, ())
                packet.message["most_bytes"] = sys.maxsize
            return packet

        with ExitStack() as connection:
            yield request

    def _answer(
        self, operation: str, arguments: dict[str, Any], descriptors: tuple[int, ...]
    ) -> Packet:
        try:
            answer = self._files[operation](*descriptors, **arguments)
        except RefusedError as error:
            return refused(error.code, str(error))
        except OSError as error:
            return Packet({"errno": error.errno or 0, "message": str(error)})
        if answer.then is not None:
            Thread(target=_finish, args=[answer], daemon=True).start()
        return Packet({"result": answer.result}, answer.data, answer.descriptors)


def _finish(answer: Answer) -> None:
    """Return when its work is done, or the reader of its pipe is gone."""
    with suppress(BrokenPipeError):
        assert answer.then is not None  # noqa: S101 - only such an answer is finished
        answer.then()


class _Children:
    """Starts processes for the table, and reports their exits to it."""

    def __init__(self) -> None:
        """Output is read at any rate: the CPU for it is the machine's own."""
        unlimited = OutputThrottle(used_sec=lambda: 0)
        self.table = CommandTable(Path(tempfile.gettempdir()), SystemClock(), unlimited)
        self._watches = Background()
        self.pids: set[int] = set()
        """Those that are waited for here."""

    def group(self, pid: int) -> ProcessGroup:
        return ProcessGroup(pid, parents=(os.getpid(),))

    async def ask(self, _operation: str, arguments: dict[str, Any]) -> Packet:
        size, has_input = arguments["terminal"], arguments["has_input"]
        ends = open_terminal(*size) if size else open_pipes(has_input=has_input, has_stderr=True)
        try:
            child = _spawn(arguments, ends.inner)
        except (OSError, subprocess.SubprocessError) as error:
            Packet({}, descriptors=ends.outer).close()
            return refused("COMMAND_REFUSED", str(error))
        finally:
            ends.close_inner()
        self.pids.add(child.pid)
        self._watches.start(self._watch(child), action="watch")
        return Packet({"result": {"pid": child.pid, "channels": ends.names}}, b"", ends.outer)

    async def _watch(self, child: "subprocess.Popen[bytes]") -> None:
        descriptor = os.pidfd_open(child.pid)
        try:
            await readable(descriptor)
        finally:
            os.close(descriptor)
        self.table.record_exit(child.pid, child.wait())
        self.pids.discard(child.pid)


def _spawn(arguments: dict[str, Any], ends: tuple[int, int, int]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - to run what callers send is its purpose
        arguments["arguments"],
        stdin=ends[0],
        stdout=ends[1],
        stderr=ends[2],
        cwd=arguments["folder"],
        env=arguments["environment"],
        start_new_session=True,
        preexec_fn=take_terminal if arguments["terminal"] else None,
    )


class ThisMachine:
    """`Machines` and `Machine` in one. Whatever user a call names, it acts as this process's
    user, in its home."""

    id = "this"

    def __init__(self, token: str, *, home: str | None = None) -> None:
        self._token = token
        self._home = home or str(Path.home())
        client = SystemClient()
        self.children = client.child_pids
        """The pids of the processes that were started and not yet waited for."""
        self._session = LocalSession(client)
        self.processes = self._session.processes

    async def enter(self, credentials: Credentials) -> "ThisMachine":
        token, link = credentials.token, credentials.link
        if token is not None and compare_digest(token.encode(), self._token.encode()):
            return self
        if link is None:
            raise AccessTokenMissingError
        if not compare_digest(link.signature, signature_of(link, self._token)):
            raise AccessTokenMissingError("invalid signature")
        if link.is_over(time.time()):
            raise LinkOverError
        return self

    async def require_running(self, _credentials: Credentials) -> None:
        """It runs: there is no other machine that an answer could tell of."""

    async def check_access(self) -> None:
        """The token is valid for as long as this process runs."""

    async def open(self, user: str | None) -> UserSession:
        return UserSession(self, self._session, Account(known_user(user), self._home), self._home)

    async def variables(self, session: UserSession) -> Mapping[str, str]:
        names = {"HOME": self._home, "USER": session.account.name, "LOGNAME": session.account.name}
        return {**os.environ, **names, "SHELL": "/bin/bash", "E2B_SANDBOX": "true"}

    async def metrics(self) -> Mapping[str, Any]:
        cpus, disk = os.cpu_count() or 1, shutil.disk_usage(self._home)
        memory = _memory()
        return {
            "ts": int(time.time()),
            "cpu_count": cpus,
            "cpu_used_pct": round(min(1.0, os.getloadavg()[0] / cpus) * 100, 2),
            "mem_total": memory["MemTotal"],
            "mem_used": memory["MemTotal"] - memory["MemAvailable"],
            "disk_used": disk.used,
            "disk_total": disk.total,
        }


def _memory() -> Mapping[str, int]:
    lines = Path("/proc/meminfo").read_text().splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: int(value.split()[0]) << 10 for name, _, value in pairs}

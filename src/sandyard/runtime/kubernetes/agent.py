"""The agent of a Pod, as the server reaches it: by TLS at the Pod's address, with the key and the
token of this run."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from secrets import token_urlsafe
from typing import Any

from sandyard.kit.lines import LineReader
from sandyard.kit.sizes import MESSAGE_BYTES
from sandyard.runtime.errors import PortClosedError, RuntimeUnavailableError, refusal_of
from sandyard.runtime.guest.program import ProgramState
from sandyard.runtime.kubernetes.manifest import AGENT_HOME, GUEST_MODULE, Keys, command
from sandyard.runtime.model import RunId
from sandyard.runtime.remote.backoff import Backoff
from sandyard.runtime.remote.connection import Connection
from sandyard.runtime.remote.envd import PORT, Envd
from sandyard.runtime.remote.errors import CallError
from sandyard.runtime.remote.files import RemoteFiles
from sandyard.runtime.remote.guest import HOME, GuestProcess, Message
from sandyard.runtime.remote.http import HttpCaller, HttpPool, parsing
from sandyard.runtime.remote.processes import RemoteProcesses
from sandyard.runtime.remote.session import RemoteSession
from sandyard.runtime.sessions.model import Command, Output, Process, absolute_path
from sandyard.runtime.sessions.ports import PortConnection

_CONNECT_SEC = 10


class AgentUnavailableError(RuntimeUnavailableError):
    """The Pod of this sandbox can't be reached now: its node may be cut off. Nothing was decided;
    try again shortly."""

    code = "POD_UNREACHABLE"


def make_keys() -> Keys:
    """A key and a certificate that only this run's agent has, and a token that only we have."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sandbox")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365))
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Keys(token_urlsafe(32), certificate.public_bytes(encoding).decode(), private.decode())


@dataclass(frozen=True, slots=True)
class AgentState:
    deadline_at: float
    cpu_seconds: float
    memory_bytes: int


@dataclass(slots=True)
class AgentGuest(GuestProcess):
    """Calls that return are made by the agent itself; a process that stays is one of its own."""

    caller: HttpCaller = field(kw_only=True)

    async def install(self) -> None:
        """The agent has it."""

    def command(self, operation: str, arguments: str) -> dict[str, Any]:
        program, *words = command(GUEST_MODULE, operation, arguments)
        return {"cmd": program, "args": words}

    async def messages(
        self, operation: str, arguments: Message, *, stays: bool = False, stdin: bool = False
    ) -> AsyncGenerator[Message]:
        if stays:
            found = GuestProcess.messages(self, operation, arguments, stays=True, stdin=stdin)
            async with aclosing(found):
                async for message in found:
                    yield message
            return
        lines = LineReader(MESSAGE_BYTES)
        path = f"/machine/guest/{operation}"
        pieces = self.caller.stream("POST", path, within_sec=None, json=arguments)
        async with aclosing(pieces):
            async for piece in pieces:
                with parsing():
                    messages = [dict(json.loads(line)) for line in lines.feed(piece)]
                for message in messages:
                    yield message


class PodPorts:
    """Ports inside, each through a connection to the agent."""

    def __init__(self, agent: "Agent", connection: Connection) -> None:
        self._agent = agent
        self._connection = connection

    async def listening(self) -> list[int]:
        ports = await self._connection.ask("listening")
        with self._connection.parsing():
            return sorted({int(port) for port in ports} - {PORT})

    async def connect(self, port: int) -> PortConnection:
        try:
            async with asyncio.timeout(_CONNECT_SEC):
                reader, writer, status = await self._agent.open_port(port)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as error:
            async with self._connection.reaching():
                raise CallError("unreachable", f"port {port}: {error!r}") from error
        if status != 200:
            writer.close()
            raise PortClosedError
        return PortConnection(reader, writer)


class PodFiles(RemoteFiles):
    def __init__(self, agent: "Agent", connection: Connection) -> None:
        super().__init__(connection)
        self._agent = agent

    async def read_tar(self, path: str) -> AsyncIterator[bytes]:
        async with aclosing(self._agent.read_tar(absolute_path(path))) as pieces:
            while True:
                async with self._connection.reaching(None):
                    piece = await anext(pieces, None)
                if piece is None:
                    return
                yield piece


class PodProcesses(RemoteProcesses):
    """The agent starts commands itself; the program has a shim, which starts it again."""

    def _message(self, command: Command) -> dict[str, Any]:
        message = super()._message(command)
        return {**message, "environment": {"HOME": HOME, **message["environment"]}}

    async def start(self, command: Command) -> Process:
        if command.program:
            return await super().start(command)
        sent = self._message(command)
        return self._process(await self._connection.ask("start_command", command=sent))

    async def run(self, command: Command) -> AsyncGenerator[Process | Output]:
        messages = self._connection.stream("run_command", command=self._message(command))
        async with aclosing(messages):
            async for each in messages:
                yield self._output(each) if "stream" in each else self._process(each)

    async def list(self) -> Sequence[Process]:
        commands = [self._process(each) for each in await self._connection.ask("list_commands")]
        return sorted([*await super().list(), *commands], key=lambda process: process.started_at)


class PodSession(RemoteSession):
    def __init__(self, agent: "Agent", connection: Connection) -> None:
        super().__init__(connection, str, proxy_url=None)
        self.files = PodFiles(agent, connection)
        self.processes = PodProcesses(connection)
        self.ports = PodPorts(agent, connection)

    async def prepare(self) -> None:
        """Its workspace is a mount, at its standard path."""
        await self._connection.ask("prepare")


class Agent:
    """Every method raises AgentUnavailableError if it does not respond."""

    def __init__(
        self, pool: HttpPool, run_id: RunId, address: str, keys: Keys, *, timeout_sec: float
    ) -> None:
        self._run_id = run_id
        self._address = address
        self._keys = keys
        self._timeout_sec = timeout_sec
        headers = {"X-Access-Token": keys.token}
        host = f"[{address}]" if ":" in address else address
        self._caller = HttpCaller(
            pool, f"https://{host}:{PORT}", headers, Backoff(longest_sec=0.25), tls=self._tls
        )

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """The run's own certificate is the only one that is trusted."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=self._keys.certificate)
        return context

    def session(self, is_running: Callable[[], Awaitable[bool]]) -> PodSession:
        envd = Envd(self._caller)
        guest = AgentGuest(envd, str(self._run_id), self._timeout_sec, caller=self._caller)
        connection = Connection(
            envd,
            guest,
            timeout_sec=self._timeout_sec,
            translate=lambda error: AgentUnavailableError(reason=error.reason),
            is_running=is_running,
            home=AGENT_HOME,
        )
        return PodSession(self, connection)

    async def state(self) -> AgentState:
        found = await self._ask("GET", "/machine")
        with _reaching(), parsing():
            return AgentState(
                float(found["deadline_at"]),
                float(found["cpu_seconds"]),
                int(found["memory_bytes"]),
            )

    async def program(self, *, recorded_at: float) -> ProgramState | None:
        """The state of its program. `recorded_at` is since when it was in the state that is
        recorded: until the agent is told of the current one, its Pod is not ready."""
        params = {"recorded_at": str(recorded_at)}
        found = await self._ask("GET", "/machine/program", params=params)
        with _reaching(), parsing():
            return None if found is None else ProgramState(**found)

    async def set_deadline(self, deadline_at: float) -> bool:
        """Whether it is moved: what has ended is not."""
        try:
            await self._caller.call(
                "POST",
                "/machine/deadline",
                within_sec=self._timeout_sec,
                json={"at": deadline_at},
            )
        except CallError as error:
            if error.status == 409:
                return False
            raise AgentUnavailableError(reason=error.reason) from error
        return True

    async def end(self, reason: str) -> dict[str, Any]:
        """Return when no process is left but the agent: how and when it ended, first of all."""
        return dict(await self._ask("POST", "/machine/end", json={"reason": reason}, more_sec=10))

    async def exit(self) -> None:
        await self._ask("POST", "/machine/exit")

    async def read_tar(self, path: str) -> AsyncGenerator[bytes]:
        """Raises CallError, and the errors of reading the folder."""
        params = {"path": path}
        pieces = self._caller.stream("GET", "/machine/tar", within_sec=None, params=params)
        async with aclosing(pieces):
            try:
                async for piece in pieces:
                    yield piece
            except CallError as error:
                number = int(error.code) if error.code.isdigit() else None
                raise refusal_of({"errno": number, "message": error.reason}) or error from error

    async def open_port(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, int]:
        reader, writer = await asyncio.open_connection(self._address, PORT, ssl=self._tls)
        try:
            target = f"127.0.0.1:{port}"
            head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
            writer.write(f"{head}X-Access-Token: {self._keys.token}\r\n\r\n".encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            return reader, writer, int(answer.split()[1])
        except BaseException:
            writer.close()
            raise

    async def _ask(self, method: str, path: str, *, more_sec: float = 0, **request: Any) -> Any:
        with _reaching():
            within_sec = self._timeout_sec + more_sec
            reply = await self._caller.call(method, path, within_sec=within_sec, **request)
            with parsing():
                return reply.json() if reply.content else None


@contextmanager
def _reaching() -> Iterator[None]:
    try:
        yield
    except CallError as error:
        raise AgentUnavailableError(reason=error.reason) from error

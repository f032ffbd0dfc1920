"""A sandbox of an account: `Sandbox.create(template="python").run("pytest")`."""

from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from types import TracebackType
from typing import Any, Generic, Self, TypedDict, TypeVar, Unpack
from uuid import uuid4

from sandyard_client import sandbox_flows as flows
from sandyard_client.calls import Calls
from sandyard_client.client import AsyncClient, Client
from sandyard_client.commands import AsyncCommand, Command
from sandyard_client.errors import CommandFailedError
from sandyard_client.files import AsyncFiles, Files
from sandyard_client.log_flows import log_lines
from sandyard_client.models import AccessTokenAnswer, PortAnswer, SandboxAnswer
from sandyard_client.nouns import (
    AsyncCommands,
    AsyncPorts,
    AsyncVariables,
    Commands,
    Ports,
    Variables,
)
from sandyard_client.sandbox_flows import CommandOutput, CommandResult, CommandWish
from sandyard_client.steps import Flow

OnOutput = Callable[[CommandOutput], object]
_Telling = Callable[[Calls], Flow[SandboxAnswer]]


class SandboxOptions(TypedDict, total=False):
    """Options of a new sandbox; omitted ones have the server's defaults."""

    name: str
    project_id: str
    description: str
    network: str
    cpu_spec: float
    memory_spec: float
    max_running_seconds: int
    idle_stop_minutes: int
    metadata: Mapping[str, str]
    recycle_on_timeout: bool


def _body(options: SandboxOptions) -> dict[str, Any]:
    return {"name": f"sandbox-{uuid4().hex[:12]}", **options}


def _shown(told: SandboxAnswer) -> str:
    return f"<Sandbox {told.name!r} {told.sandbox_id} {told.status}>"


def _checked(result: CommandResult, command: str | Sequence[str], *, check: bool) -> CommandResult:
    if check and result.exit_code != 0:
        tail = result.stderr.strip().splitlines()[-1:] or [""]
        message = f"{command!r} ended with {result.exit_code}. {tail[0]}".strip()
        raise CommandFailedError(message, result.exit_code)
    return result


class Sandbox:
    """At the end of a `with` block it is deleted."""

    def __init__(self, client: Client, told: SandboxAnswer, *, owns_client: bool = False) -> None:
        self._client = client
        self._owns_client = owns_client
        self.told = told
        """As last reported by the server."""
        self.files = Files(client, told.sandbox_id)
        self.env = Variables(client, sandbox_id=told.sandbox_id)
        self.commands = Commands(client, sandbox_id=told.sandbox_id)

    @classmethod
    def create(
        cls,
        *,
        template: str,
        start: bool = True,
        client: Client | None = None,
        **options: Unpack[SandboxOptions],
    ) -> Self:
        """Create a sandbox from a template, by name or id, and start it unless told otherwise.
        ConflictError if the name is taken; a sandbox that does not start is deleted again."""
        make = flows.create_started if start else flows.create
        return cls._told(client, lambda calls: make(calls, template, _body(options)))

    @classmethod
    def get(cls, sandbox_id: str, *, client: Client | None = None) -> Self:
        return cls._told(client, lambda calls: flows.get(calls, sandbox_id))

    @classmethod
    def _told(cls, client: Client | None, flow: _Telling) -> Self:
        used = client or Client()
        try:
            told = used.run(flow(used.calls))
        except BaseException:
            if client is None:
                used.close()
            raise
        return cls(used, told, owns_client=client is None)

    def __repr__(self) -> str:
        return _shown(self.told)

    @property
    def sandbox_id(self) -> str:
        return self.told.sandbox_id

    @property
    def name(self) -> str:
        return self.told.name

    def refresh(self) -> SandboxAnswer:
        self.told = self._client.run(flows.get(self._client.calls, self.sandbox_id))
        return self.told

    def start(self) -> None:
        self.told = self._client.run(flows.start(self._client.calls, self.sandbox_id))

    def stop(self, *, memory: bool | None = None) -> None:
        """Stop the sandbox and keep its files; with `memory`, what runs in it too (under gVisor).
        By default as its `keeps_memory` says."""
        flow = flows.stop(self._client.calls, self.sandbox_id, memory=memory)
        self.told = self._client.run(flow)

    def run(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        folder: str | None = None,
        timeout: float | None = None,
        check: bool = False,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        """Run a command, or a shell command line, to its end. It is started at most once, and its
        output survives lost connections and a restart of the server. With `check`,
        CommandFailedError unless it ends with 0."""
        wish = CommandWish(command, env, folder)
        flow = flows.run(
            self._client.calls, self.sandbox_id, wish, timeout_sec=timeout, on_output=on_output
        )
        return _checked(self._client.run(flow), command, check=check)

    def spawn(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        folder: str | None = None,
        has_input: bool = False,
    ) -> Command:
        """Start a command in the background; it runs on when this program ends."""
        wish = CommandWish(command, env, folder, has_input=has_input)
        flow = flows.start_command(self._client.calls, self.sandbox_id, wish)
        return Command(self._client, self.sandbox_id, self._client.run(flow))

    def ports(self) -> list[PortAnswer]:
        """The ports that its programs listen on, with their addresses."""
        return list(Ports(self._client, sandbox_id=self.sandbox_id).list())

    def snapshot(self, name: str | None = None) -> str:
        """The id of a template with its files as they are now, for other sandboxes."""
        return self._client.run(flows.snapshot(self._client.calls, self.sandbox_id, name))

    def logs(self, *, lines: int = 100, follow: bool = False) -> Iterator[str]:
        """The program's output; with `follow` until the program ends."""
        flow = log_lines(
            self._client.calls, f"/sandboxes/{self.sandbox_id}/logs", lines=lines, follow=follow
        )
        return self._client.iterate(flow)

    def link(self, *, port: int | None = None, minutes: int = 60) -> AccessTokenAnswer:
        """A link and a token for the program that listens on the port."""
        flow = flows.link(self._client.calls, self.sandbox_id, port=port, minutes=minutes)
        return self._client.run(flow)

    def recycle(self) -> None:
        """Delete the sandbox and its files."""
        self._client.run(flows.recycle(self._client.calls, self.sandbox_id))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            self.recycle()
        finally:
            if self._owns_client:
                self._client.close()


class AsyncSandbox:
    """The same for asyncio: `async with AsyncSandbox.create(template="python") as sandbox:`."""

    def __init__(
        self, client: AsyncClient, told: SandboxAnswer, *, owns_client: bool = False
    ) -> None:
        self._client = client
        self._owns_client = owns_client
        self.told = told
        self.files = AsyncFiles(client, told.sandbox_id)
        self.env = AsyncVariables(client, sandbox_id=told.sandbox_id)
        self.commands = AsyncCommands(client, sandbox_id=told.sandbox_id)

    @classmethod
    def create(
        cls,
        *,
        template: str,
        start: bool = True,
        client: AsyncClient | None = None,
        **options: Unpack[SandboxOptions],
    ) -> "AsyncMaking[Self]":
        """Like `Sandbox.create`; nothing is sent until it is entered or awaited."""
        make = flows.create_started if start else flows.create
        return AsyncMaking(
            lambda: cls._told(client, lambda calls: make(calls, template, _body(options)))
        )

    @classmethod
    async def get(cls, sandbox_id: str, *, client: AsyncClient | None = None) -> Self:
        return await cls._told(client, lambda calls: flows.get(calls, sandbox_id))

    @classmethod
    async def _told(cls, client: AsyncClient | None, flow: _Telling) -> Self:
        used = client or AsyncClient()
        try:
            told = await used.run(flow(used.calls))
        except BaseException:
            if client is None:
                await used.close()
            raise
        return cls(used, told, owns_client=client is None)

    @property
    def sandbox_id(self) -> str:
        return self.told.sandbox_id

    @property
    def name(self) -> str:
        return self.told.name

    def __repr__(self) -> str:
        return _shown(self.told)

    async def refresh(self) -> SandboxAnswer:
        self.told = await self._client.run(flows.get(self._client.calls, self.sandbox_id))
        return self.told

    async def start(self) -> None:
        self.told = await self._client.run(flows.start(self._client.calls, self.sandbox_id))

    async def stop(self, *, memory: bool | None = None) -> None:
        flow = flows.stop(self._client.calls, self.sandbox_id, memory=memory)
        self.told = await self._client.run(flow)

    async def run(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        folder: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it is the command's, not the call's
        check: bool = False,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        wish = CommandWish(command, env, folder)
        flow = flows.run(
            self._client.calls, self.sandbox_id, wish, timeout_sec=timeout, on_output=on_output
        )
        return _checked(await self._client.run(flow), command, check=check)

    async def spawn(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        folder: str | None = None,
        has_input: bool = False,
    ) -> AsyncCommand:
        wish = CommandWish(command, env, folder, has_input=has_input)
        flow = flows.start_command(self._client.calls, self.sandbox_id, wish)
        return AsyncCommand(self._client, self.sandbox_id, await self._client.run(flow))

    async def ports(self) -> list[PortAnswer]:
        return [each async for each in AsyncPorts(self._client, sandbox_id=self.sandbox_id).list()]

    async def snapshot(self, name: str | None = None) -> str:
        return await self._client.run(flows.snapshot(self._client.calls, self.sandbox_id, name))

    def logs(self, *, lines: int = 100, follow: bool = False) -> AsyncIterator[str]:
        flow = log_lines(
            self._client.calls, f"/sandboxes/{self.sandbox_id}/logs", lines=lines, follow=follow
        )
        return self._client.iterate(flow)

    async def link(self, *, port: int | None = None, minutes: int = 60) -> AccessTokenAnswer:
        flow = flows.link(self._client.calls, self.sandbox_id, port=port, minutes=minutes)
        return await self._client.run(flow)

    async def recycle(self) -> None:
        await self._client.run(flows.recycle(self._client.calls, self.sandbox_id))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            await self.recycle()
        finally:
            if self._owns_client:
                await self._client.close()


_Made = TypeVar("_Made", bound=AsyncSandbox)


class AsyncMaking(Generic[_Made]):
    """A sandbox to be created: awaited, or entered and then deleted at the end."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, _Made]]) -> None:
        self._make = make
        self._made: _Made | None = None

    def __await__(self) -> Generator[Any, None, _Made]:
        return self._make().__await__()

    async def __aenter__(self) -> _Made:
        self._made = await self._make()
        return self._made

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        assert self._made is not None  # noqa: S101 - it was entered
        await self._made.__aexit__(kind, error, at)

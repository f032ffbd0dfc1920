"""A command that runs in the background: `sandbox.spawn("npm run dev")`."""

from collections.abc import AsyncIterator, Callable, Iterator

from sandyard_client import sandbox_flows as flows
from sandyard_client.client import AsyncClient, Client
from sandyard_client.nouns import AsyncCommands, Commands
from sandyard_client.sandbox_flows import CommandOutput, CommandResult

OnOutput = Callable[[CommandOutput], object]


class Command:
    """It can be found again by its id, from any program."""

    def __init__(self, client: Client, sandbox_id: str, command_id: str) -> None:
        self._client = client
        self._commands = Commands(client, sandbox_id=sandbox_id)
        self.sandbox_id = sandbox_id
        self.command_id = command_id

    def output(self) -> Iterator[CommandOutput]:
        """All of its output, until it ends; lost connections lose and repeat nothing."""
        flow = flows.follow(self._client.calls, self.sandbox_id, self.command_id)
        return self._client.iterate(flow)

    def wait(
        self, *, timeout: float | None = None, on_output: OnOutput | None = None
    ) -> CommandResult:
        """Its result when it ends, or when its time is over: then it is killed."""
        return self._client.run(
            flows.wait(
                self._client.calls,
                self.sandbox_id,
                self.command_id,
                timeout_sec=timeout,
                on_output=on_output,
            )
        )

    def write(self, data: str, *, close: bool = False) -> None:
        """Write to its standard input; it must have been started with `has_input`."""
        self._commands.write(self.command_id, data=data, close=close)

    def signal(self, name: str) -> None:
        self._commands.signal(self.command_id, signal=name)  # type: ignore[arg-type]

    def kill(self) -> None:
        """Kill its process group."""
        self._commands.kill(self.command_id)


class AsyncCommand:
    """The same for asyncio."""

    def __init__(self, client: AsyncClient, sandbox_id: str, command_id: str) -> None:
        self._client = client
        self._commands = AsyncCommands(client, sandbox_id=sandbox_id)
        self.sandbox_id = sandbox_id
        self.command_id = command_id

    def output(self) -> AsyncIterator[CommandOutput]:
        flow = flows.follow(self._client.calls, self.sandbox_id, self.command_id)
        return self._client.iterate(flow)

    async def wait(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - it is the command's, not the call's
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        return await self._client.run(
            flows.wait(
                self._client.calls,
                self.sandbox_id,
                self.command_id,
                timeout_sec=timeout,
                on_output=on_output,
            )
        )

    async def write(self, data: str, *, close: bool = False) -> None:
        await self._commands.write(self.command_id, data=data, close=close)

    async def signal(self, name: str) -> None:
        await self._commands.signal(self.command_id, signal=name)  # type: ignore[arg-type]

    async def kill(self) -> None:
        await self._commands.kill(self.command_id)

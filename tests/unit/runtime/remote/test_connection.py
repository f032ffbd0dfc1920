"""What a call into a machine elsewhere is, if its response ends before it was complete."""

from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from sandyard.runtime.errors import NotRunningError, RuntimeUnavailableError
from sandyard.runtime.remote.backoff import Backoff
from sandyard.runtime.remote.connection import Connection
from sandyard.runtime.remote.envd import Envd
from sandyard.runtime.remote.guest import Message
from sandyard.runtime.remote.http import HttpCaller, HttpPool


class SilentGuest:
    """Its machine ends with each call."""

    async def install(self) -> None:
        pass

    async def messages(self, *_: object, **__: object) -> AsyncGenerator[Message]:
        nothing: list[Message] = []
        for message in nothing:
            yield message


async def _stream(connection: Connection) -> None:
    async for _ in connection.stream("run_command"):
        pass


@pytest.mark.parametrize(
    "call",
    [
        lambda connection: connection.ask("stat"),
        lambda connection: connection.begin("start", has_input=False),
        _stream,
    ],
    ids=["ask", "begin", "stream"],
)
@pytest.mark.parametrize(
    ("is_running", "error"), [(True, RuntimeUnavailableError), (False, NotRunningError)]
)
async def test_no_response_is_an_outage_unless_the_machine_has_ended(
    call: Callable[[Connection], Awaitable[object]], is_running: bool, error: type[Exception]
) -> None:
    async def answer() -> bool:
        return is_running

    backoff = Backoff()
    connection = Connection(
        Envd(HttpCaller(HttpPool(backoff), "http://127.0.0.1:9", {}, backoff)),
        SilentGuest(),
        timeout_sec=5,
        translate=lambda failure: RuntimeUnavailableError(reason=failure.reason),
        is_running=answer,
    )
    with pytest.raises(error) as raised:
        await call(connection)
    assert type(raised.value) is error

"""Providers on real HTTP, and clients for them that lose no time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Protocol

import pytest
from prometheus_client import Counter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sandyard.broker.provider.client import DIALECTS, HttpProvider, ProviderPolicy
from sandyard.entrypoints.server.listeners import Listener
from sandyard.kit.free_ports import free_port
from sandyard.tools.provider.simulator import Simulator, create_simulator_app

PATIENT = ProviderPolicy(
    connect_timeout_sec=5,
    read_timeout_sec=10,
    attempts=1,
    backoff_base_sec=0.005,
    backoff_max_sec=0.01,
    circuit_threshold=1000,
    circuit_timeout_sec=60,
)
"""One attempt, no circuit and no time-out to speak of; a test asks for the trouble it is about."""


class Serve(Protocol):
    async def __call__(self, app: ASGIApp) -> str:
        """Listen with this application until the test is over; gives its URL."""
        ...


class Connect(Protocol):
    def __call__(
        self, url: str, *, dialect: str = "generic", token: str = "", **policy: Any
    ) -> HttpProvider:
        """A client whose policy is PATIENT but for what is named."""
        ...


class Answers:
    """A provider that gives prepared answers in turn, the last one ever after.

    It keeps the requests that it got.
    """

    def __init__(self, *answers: ASGIApp) -> None:
        self._answers = answers
        self.requests: list[Request] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._answers[min(len(self.requests), len(self._answers) - 1)]
        self.requests.append(Request(scope))
        await answer(scope, receive, send)


def status(code: int) -> ASGIApp:
    return Response(status_code=code)


async def silence(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """The answer that never comes."""
    await asyncio.sleep(3600)


async def eventually(holds: Callable[[], bool], *, within_sec: float = 60) -> None:
    """Return as soon as it holds; TimeoutError if it does not in time."""
    async with asyncio.timeout(within_sec):
        while not holds():
            await asyncio.sleep(0.005)


def count(counter: Counter, **labels: str) -> float:
    """What a counter shows for these labels."""
    [value] = [
        sample.value
        for metric in counter.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and sample.labels == labels
    ]
    return value


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    listeners: list[Listener] = []

    async def start(app: ASGIApp) -> str:
        listener = Listener(app, host="127.0.0.1", port=free_port())
        await listener.start()
        listeners.append(listener)
        return f"http://127.0.0.1:{listener.port}"

    yield start
    for listener in listeners:
        await listener.stop()


@pytest.fixture
def simulator() -> Simulator:
    return Simulator()


@pytest.fixture
async def simulator_url(serve: Serve, simulator: Simulator) -> str:
    return await serve(create_simulator_app(simulator))


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    providers: list[HttpProvider] = []

    def make(url: str, *, dialect: str = "generic", token: str = "", **policy: Any) -> HttpProvider:
        kind = DIALECTS[dialect]
        provider = kind(base_url=url, token=token, policy=replace(PATIENT, **policy))
        providers.append(provider)
        return provider

    yield make
    for provider in providers:
        await provider.close()

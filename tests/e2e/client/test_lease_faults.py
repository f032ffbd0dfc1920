"""Leases by the client, from a real server, through lost answers, 503 and restarts: never two,
and none is left behind."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from sandyard_client import (
    AsyncClient,
    AsyncLease,
    Client,
    Connection,
    ConnectionFailedError,
    Lease,
    LeaseLostError,
    NoSandboxesAvailableError,
    RetryPolicy,
    UnavailableError,
)

from tests.e2e.client.conftest import QUICKLY
from tests.e2e.client.lossy_proxy import Fate, LossyProxy
from tests.e2e.client.restarting import RestartingServer
from tests.support.servers.users import until

PARTS = "broker"


@pytest.fixture
def track() -> str:
    return f"track-{uuid4().hex[:12]}"


@pytest.mark.parametrize("fate", ["drop", "refuse", "refuse_late", "reset"])
@pytest.mark.parametrize("path", ["allocate", "mark-for-deletion"])
def test_one_lease_is_taken_and_given_up_whatever_becomes_of_the_answers(
    fate: Fate, path: str, client: Client, proxy: LossyProxy, backend: RestartingServer, track: str
) -> None:
    proxy.first([fate, fate, fate], path=path)
    with Lease.acquire(track=track, client=client) as lease:
        assert backend.allocated(track) == [lease.sandbox_id]
    assert backend.allocated(track) == []
    assert backend.leases_made(track) == 1
    assert proxy.count(fate) == 3


async def test_async_leases_are_taken_and_released_despite_lost_answers(
    connection: Connection, proxy: LossyProxy, backend: RestartingServer, track: str
) -> None:
    proxy.at_random(0.4, seed=3)
    async with AsyncClient(connection, retries=QUICKLY) as client:

        async def hold(number: int) -> None:
            async with AsyncLease.acquire(track=f"{track}-{number}", client=client) as lease:
                await lease.extend(5)

        await asyncio.gather(*(hold(number) for number in range(12)))
    proxy.calm()
    for number in range(12):
        assert backend.allocated(f"{track}-{number}") == []
        assert backend.leases_made(f"{track}-{number}") == 1


def test_a_restart_in_the_middle_of_many_leases_neither_doubles_nor_leaks_one(
    client: Client, proxy: LossyProxy, backend: RestartingServer, track: str
) -> None:
    proxy.at_random(0.2, seed=11)
    begun = threading.Semaphore(0)

    def hold(number: int) -> None:
        with Lease.acquire(track=f"{track}-{number}", client=client, renew_minutes=300):
            begun.release()

    with ThreadPoolExecutor(8) as threads:
        held = [threads.submit(hold, number) for number in range(40)]
        for _ in range(5):
            assert begun.acquire(timeout=60)
        backend.restart()
        for each in held:
            each.result(120)
    proxy.calm()
    for number in range(40):
        assert backend.allocated(f"{track}-{number}") == []
        assert backend.leases_made(f"{track}-{number}") == 1


def test_a_lease_whose_answers_are_all_lost_is_found_and_given_up(
    connection: Connection, proxy: LossyProxy, backend: RestartingServer, track: str
) -> None:
    def lose_claims(method: str, path: str) -> Fate:
        is_first = not any("queue" in each for _, each, _ in proxy.met)
        return "drop" if path == "/v1/allocate" and is_first else "pass"

    proxy.choose = lose_claims
    impatient = RetryPolicy(within_sec=0.3, first_delay_sec=0.05)
    with Client(connection, retries=impatient) as client, pytest.raises(ConnectionFailedError):
        Lease.acquire(track=track, client=client)
    assert proxy.count("drop") >= 1
    assert backend.allocated(track) == []
    assert backend.leases_made(track) == 1


def test_checking_for_a_lost_lease_does_not_take_a_sandbox(
    connection: Connection, proxy: LossyProxy, backend: RestartingServer, track: str
) -> None:
    def refuse_claims(method: str, path: str) -> Fate:
        is_first = not any("queue" in each for _, each, _ in proxy.met)
        return "refuse" if path == "/v1/allocate" and is_first else "pass"

    proxy.choose = refuse_claims
    impatient = RetryPolicy(within_sec=0.3, first_delay_sec=0.05)
    with Client(connection, retries=impatient) as client, pytest.raises(UnavailableError):
        Lease.acquire(track=track, client=client)
    assert backend.leases_made(track) == 0


async def test_a_task_that_is_cancelled_while_it_takes_a_lease_leaves_none(
    connection: Connection, proxy: LossyProxy, backend: RestartingServer, track: str
) -> None:
    claimed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def lose_first(method: str, path: str) -> Fate:
        if path == "/v1/allocate" and not claimed.is_set():
            loop.call_soon_threadsafe(claimed.set)
            return "drop"
        return "pass"

    proxy.choose = lose_first
    slowly = RetryPolicy(within_sec=60, first_delay_sec=5)
    async with AsyncClient(connection, retries=slowly) as client:

        async def hold() -> None:
            async with AsyncLease.acquire(track=track, client=client):
                raise AssertionError("it was cancelled before")

        holding = asyncio.create_task(hold())
        await claimed.wait()
        while backend.leases_made(track) == 0:
            await asyncio.sleep(0.05)
        while not holding.done():  # as structured concurrency does, until it has ended
            holding.cancel()
            await asyncio.sleep(0)
    assert holding.cancelled()
    assert backend.allocated(track) == []
    assert backend.leases_made(track) == 1


def test_an_error_in_the_block_gives_the_lease_up_and_is_raised(
    client: Client, proxy: LossyProxy, backend: RestartingServer, track: str
) -> None:
    with pytest.raises(ZeroDivisionError), Lease.acquire(track=track, client=client):
        _ = 1 / 0
    assert backend.allocated(track) == []


def test_who_waits_in_vain_leaves_the_queue(
    client: Client, proxy: LossyProxy, backend: RestartingServer, track: str
) -> None:
    positions: list[int] = []
    proxy.first(["drop"], path="queue")
    with pytest.raises(NoSandboxesAvailableError):
        Lease.acquire(
            track=track,
            wait=0.8,
            name_prefix="no-such-",
            client=client,
            on_wait=lambda ticket: positions.append(ticket.position),
        )
    assert positions
    assert [method for method, path, _ in proxy.met if path == "/v1/queue"][-1] == "DELETE"
    assert backend.leases_made(track) == 0


def test_the_end_is_kept_ahead_in_the_background(
    client: Client, proxy: LossyProxy, backend: RestartingServer, track: str
) -> None:
    proxy.first(["drop"], path="extend")
    with Lease.acquire(track=track, minutes=1, renew_minutes=1, client=client) as lease:
        first = lease.allocated_at
        until(lambda: (lease.expires_at - first).total_seconds() >= 120)
        assert (lease.expires_at - first).total_seconds() == 120
        lease.check()
    assert backend.allocated(track) == []


def test_a_lease_that_was_taken_away_is_told(
    client: Client, proxy: LossyProxy, backend: RestartingServer, track: str
) -> None:
    lease = Lease.acquire(track=track, client=client)
    Lease.acquire(track=track, client=client).release()
    with pytest.raises(LeaseLostError):
        lease.extend(5)
    lease.release()

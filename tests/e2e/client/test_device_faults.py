"""A device by the client: a full disk, lost answers and restarts lose and double nothing."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sandyard_client import (
    AsyncClient,
    AsyncDevice,
    BufferFullError,
    Client,
    Connection,
    Credential,
    Device,
    Request,
    RetryPolicy,
    UnauthorizedError,
)

from tests.e2e.client.lossy_proxy import LossyProxy
from tests.e2e.client.restarting import RestartingServer
from tests.support.storage.disks import SmallDisk, small_disk

PARTS = "telemetry"
IMPATIENT = RetryPolicy(within_sec=0.2, first_delay_sec=0.02)
FIRST_MS = time.time_ns() // 1_000_000 - 3_600_000


@pytest.fixture
def hardware_id() -> str:
    digits = uuid4().hex[:12].upper()
    return ":".join(digits[start : start + 2] for start in range(0, 12, 2))


@pytest.fixture
def board(connection: Connection, client: Client) -> Connection:
    request = Request("POST", "/telemetry/v1/api-keys", Credential.TELEMETRY, json={})
    return Connection(connection.url, device_key=client.call(request)["api_key"])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path, megabytes=1) as disk:
        yield disk


@contextmanager
def device(
    board: Connection, hardware_id: str, folder: Path, *, boot_id: str | None = None
) -> Iterator[Device]:
    with (
        Client(board, retries=IMPATIENT) as client,
        Device(
            hardware_id,
            firmware_version="1.0",
            boot_id=boot_id,
            buffer=folder / "readings.db",
            client=client,
        ) as device,
    ):
        yield device


def measured(numbers: range) -> list[dict[str, Any]]:
    return [
        {"timestamp_ms": FIRST_MS + number, "sensors": {"number": number}} for number in numbers
    ]


def stored(backend: RestartingServer, hardware_id: str) -> Counter[int]:
    """How often the server has the reading of each number."""
    found: Counter[int] = Counter()
    cursor = None
    with httpx.Client(
        base_url=backend.url, headers=backend.process.operator, timeout=30
    ) as operator:
        while True:
            query = {"limit": 1000} | ({"cursor": cursor} if cursor else {})
            path = f"/telemetry/v1/devices/{hardware_id}/readings"
            page = operator.get(path, params=query).raise_for_status().json()
            found.update(int(each["sensors"]["number"]) for each in page["readings"])
            cursor = page["next_cursor"]
            if cursor is None:
                return found


def once_each(count: int) -> Counter[int]:
    return Counter(range(count))


def test_lost_answers_and_503_neither_lose_nor_double_a_reading(
    board: Connection,
    hardware_id: str,
    proxy: LossyProxy,
    backend: RestartingServer,
    tmp_path: Path,
) -> None:
    proxy.at_random(0.6, seed=5)
    with device(board, hardware_id, tmp_path) as sender:
        for start in range(0, 400, 20):
            sender.send(measured(range(start, start + 20)))
        while sender.waiting:
            sender.send()
        assert sender.rejections() == []
    assert proxy.count("drop", "refuse_late") > 0
    assert stored(backend, hardware_id) == once_each(400)


def test_what_waits_survives_a_restart_of_the_device(
    board: Connection,
    hardware_id: str,
    proxy: LossyProxy,
    backend: RestartingServer,
    tmp_path: Path,
) -> None:
    with device(board, hardware_id, tmp_path) as sender:
        assert sender.send(measured(range(10))).stored == 10
        proxy.choose = lambda _method, _path: "drop"
        delivery = sender.send(measured(range(10, 30)))
        assert (delivery.stored, delivery.waiting) == (0, 20)
        assert delivery.trouble is not None
    with device(board, hardware_id, tmp_path) as sender:
        assert sender.send(measured(range(30, 40))).waiting == 30
        proxy.calm()
        assert sender.send().stored == 30
    assert stored(backend, hardware_id) == once_each(40)


def test_a_full_disk_loses_nothing_while_the_server_is_there(
    board: Connection, hardware_id: str, backend: RestartingServer, disk: SmallDisk
) -> None:
    with device(board, hardware_id, disk.path) as sender:
        assert sender.send(measured(range(5))).stored == 5
        disk.fill()
        assert sender.send(measured(range(5, 500))).stored == 495
        disk.free()
        assert sender.send(measured(range(500, 510))).waiting == 0
    assert stored(backend, hardware_id) == once_each(510)


def test_a_full_disk_a_lost_answer_and_a_restart_lose_and_double_nothing(
    board: Connection,
    hardware_id: str,
    proxy: LossyProxy,
    backend: RestartingServer,
    disk: SmallDisk,
) -> None:
    with device(board, hardware_id, disk.path) as sender:
        sender.register()
        proxy.choose = lambda _method, _path: "drop"
        assert sender.send(measured(range(20))).waiting == 20
        disk.fill()
        with pytest.raises(BufferFullError) as full:
            sender.send(measured(range(20, 620)))
        proxy.calm()
        assert sender.send().waiting == 0
    backend.restart()
    with device(board, hardware_id, disk.path) as sender:
        assert sender.send(full.value.readings).waiting == 0
        assert sender.send(full.value.readings).waiting == 0
        disk.free()
        assert sender.send(full.value.readings).waiting == 0
    assert stored(backend, hardware_id) == once_each(620)


def test_a_reading_that_is_measured_again_is_the_same_reading(
    board: Connection, hardware_id: str, backend: RestartingServer, tmp_path: Path
) -> None:
    boot_id = str(uuid4())
    for _ in range(2):
        with device(board, hardware_id, tmp_path, boot_id=boot_id) as sender:
            sender.send(measured(range(3)))
    assert stored(backend, hardware_id) == once_each(3)


def test_a_refused_reading_is_kept_apart_and_holds_up_no_other(
    board: Connection, hardware_id: str, backend: RestartingServer, tmp_path: Path
) -> None:
    with device(board, hardware_id, tmp_path) as sender:
        old = {"timestamp_ms": 946_684_800_001, "sensors": {"number": 7}}
        delivery = sender.send([*measured(range(1)), old])
        assert (delivery.stored, delivery.waiting) == (1, 0)
        assert [each.code for each in delivery.rejected] == ["TOO_OLD"]
        assert [each.reading["sensors"] for each in sender.rejections()] == [{"number": 7}]
        sender.forget_rejections()
        assert sender.rejections() == []
        with pytest.raises(ValueError, match="number"):
            sender.send([{"sensors": {"number": float("nan")}}])
    assert stored(backend, hardware_id) == once_each(1)


def test_a_wrong_key_is_told_and_the_buffer_stays(
    board: Connection, hardware_id: str, backend: RestartingServer, tmp_path: Path
) -> None:
    wrong = Connection(board.url, device_key="0" * 64)
    with device(wrong, hardware_id, tmp_path) as sender:
        with pytest.raises(UnauthorizedError):
            sender.send(measured(range(4)))
        assert sender.waiting == 4
    with device(board, hardware_id, tmp_path) as sender:
        assert sender.send().stored == 4
    assert stored(backend, hardware_id) == once_each(4)


async def test_async_devices_neither_lose_nor_double_a_reading(
    board: Connection,
    hardware_id: str,
    proxy: LossyProxy,
    backend: RestartingServer,
    tmp_path: Path,
) -> None:
    proxy.at_random(0.5, seed=9)
    async with (
        AsyncClient(board, retries=IMPATIENT) as client,
        AsyncDevice(
            hardware_id, firmware_version="1.0", buffer=tmp_path / "readings.db", client=client
        ) as sender,
    ):
        batches = [measured(range(start, start + 10)) for start in range(0, 100, 10)]
        await asyncio.gather(*(sender.send(batch) for batch in batches))
        while sender.waiting:
            await sender.send()
    assert stored(backend, hardware_id) == once_each(100)

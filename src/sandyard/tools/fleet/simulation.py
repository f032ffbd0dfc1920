"""The fleet: boards that register and send until all is confirmed, and then the check."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sandyard.kit.concurrency.tasks import for_each
from sandyard.kit.errors import SandyardError
from sandyard.tools.fleet import board as fleet_board
from sandyard.tools.fleet import wire as fleet_wire

Progress = Callable[[int], None]
"""Called with the number done."""

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The fleet's size and behavior."""

    count: int
    readings: int
    """Per board."""
    seed: int
    behavior: fleet_board.BoardBehavior = field(default_factory=fleet_board.BoardBehavior)
    rate: float = 0.0
    """Readings per second of all boards together; 0 is unlimited."""
    lost_answers: float = 0.0
    """The share of requests whose response never reaches the board."""
    stall_timeout_sec: float = 60.0


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of the sending, without the check."""

    devices: int
    readings: int
    requests: int
    duplicates: int
    answers_lost: int
    retries: int
    seconds: float

    @property
    def readings_per_sec(self) -> float:
        return self.readings / self.seconds


@asynccontextmanager
async def open_fleet(plan: FleetPlan, *, url: str, admin_token: str) -> AsyncIterator["Fleet"]:
    """A fleet of new boards, so that it can run against a server repeatedly."""
    stall_timeout = fleet_wire.StallTimeout(plan.stall_timeout_sec, rng=_rng(plan, "stall_timeout"))
    wire = fleet_wire.Wire(
        url, lost_answers=plan.lost_answers, stall_timeout=stall_timeout, rng=_rng(plan, "wire")
    )
    try:
        yield Fleet(plan, wire, admin_token=admin_token)
    finally:
        await wire.close()


class Fleet:
    def __init__(self, plan: FleetPlan, wire: fleet_wire.Wire, *, admin_token: str) -> None:
        self.boards = list(_boards(plan))
        self._wire = wire
        self._admin = {"Authorization": f"Bearer {admin_token}"}
        self._pace = fleet_wire.Pace(plan.rate)
        self._confirmed = 0

    async def send(self, progress: Progress) -> Summary:
        """Send until every reading is confirmed, with a temporary API key.

        Raises ServerNotFoundError if there is no server at the start, ServerRefusedError if it
        refuses a call, NoProgressError if there is no progress for too long.
        """
        started = time.monotonic()

        async def live(board: fleet_board.Board) -> None:
            await self._live(board, headers={"X-API-Key": api_key}, progress=progress)

        async with self._api_key() as api_key:
            await for_each(self.boards, live, slots=asyncio.Semaphore(len(self.boards)))
            seconds = time.monotonic() - started
        counters = self._wire.counters
        return Summary(
            devices=len(self.boards),
            readings=sum(len(board.measured.readings) for board in self.boards),
            requests=counters.requests,
            duplicates=sum(board.repeats for board in self.boards),
            answers_lost=counters.answers_lost,
            retries=counters.retries,
            seconds=seconds,
        )

    async def check(self, progress: Progress) -> list[fleet_board.Difference]:
        """Wrong responses, and differences between stored and measured readings."""
        checked = 0

        async def check_one(board: fleet_board.Board) -> list[fleet_board.Difference]:
            nonlocal checked
            found = [*board.findings, *await self._check(board.measured)]
            checked += 1
            progress(checked)
            return found

        found = await for_each(
            self.boards, check_one, slots=asyncio.Semaphore(fleet_wire.CONNECTIONS)
        )
        return [difference for each in found for difference in each]

    @asynccontextmanager
    async def _api_key(self) -> AsyncIterator[str]:
        body = {"description": "sandyard devices simulate"}
        made = await self._wire.attempt("POST", "/api-keys", headers=self._admin, body=body)
        if isinstance(made, fleet_wire.Failed):
            raise fleet_wire.ServerNotFoundError(
                f"No server responds at {self._wire.url} ({self._wire.last_failure}). "
                "Start one with `sandyard serve`, or pass the --url of a running one."
            )
        key_id, api_key = _fields(made, "key_id", "api_key")
        revocation = ("DELETE", f"/api-keys/{key_id}")
        try:
            yield api_key
        except BaseException:
            with suppress(SandyardError):
                await self._wire.attempt(*revocation, headers=self._admin)
            raise
        _fields(await self._wire.call(*revocation, headers=self._admin), "is_active")

    async def _live(
        self, board: fleet_board.Board, *, headers: Mapping[str, str], progress: Progress
    ) -> None:
        """Registers the board at each boot, and sends until nothing is left."""
        confirmation = await self._register(board, board.measured.boots[0], headers)
        trouble = self._wire.trouble()
        while batch := board.next_batch():
            if batch.reboot and await self._register(board, batch.reboot, headers) != confirmation:
                board.find("its confirmation id changed")
            await self._pace.wait(batch.fresh)
            answer = await self._wire.attempt(
                "POST", "/data", headers=headers, body=batch.body, may_get_lost=True
            )
            if isinstance(answer, fleet_wire.Failed):
                board.unanswered(batch)
                self._wire.counters.retries += 1
                await trouble.wait(retry_after_sec=answer.retry_after_sec)
                continue
            trouble.over()
            self._take(board, batch, answer)
            progress(self._confirmed)

    def _take(self, board: fleet_board.Board, batch: fleet_board.Batch, answer: Any) -> None:
        _fields(answer, "acknowledged_batch_ids", "duplicate_batch_ids", "rejected")
        self._confirmed += board.answered(batch, answer)

    async def _register(
        self, board: fleet_board.Board, boot: fleet_board.Boot, headers: Mapping[str, str]
    ) -> str:
        answer = await self._wire.call(
            "POST",
            "/register",
            headers=headers,
            body=board.measured.registration(boot),
            may_get_lost=True,
        )
        [confirmation] = _fields(answer, "confirmation_id")
        return str(confirmation)

    async def _check(self, measured: fleet_board.Measured) -> list[fleet_board.Difference]:
        device = f"/devices/{measured.hardware_id}"
        stored = await self._stored(device, expected=len(measured.readings))
        latest = await self._wire.call("GET", f"{device}/latest", headers=self._admin)
        return [
            *fleet_board.compare(measured.hardware_id, measured.readings, stored),
            *fleet_board.compare_latest(measured.hardware_id, measured.readings, latest),
        ]

    async def _stored(self, device: str, *, expected: int) -> Sequence[fleet_board.Reading]:
        """All readings that the server lists; stops if the list is longer than it can be."""
        stored: list[fleet_board.Reading] = []
        params: dict[str, str | int] = {"limit": _PAGE}
        for _ in range(expected + 2):
            page = await self._wire.call(
                "GET", f"{device}/readings", headers=self._admin, params=params
            )
            if page is None:
                break
            readings, cursor = _fields(page, "readings", "next_cursor")
            stored += readings
            if cursor is None:
                break
            params["cursor"] = cursor
        return stored


def _boards(plan: FleetPlan) -> Iterator[fleet_board.Board]:
    now_ms = int(time.time() * 1000)
    for number in range(plan.count):
        rng = _rng(plan, f"board {number}")
        measured = fleet_board.measure(
            fleet_board.new_hardware_id(), count=plan.readings, until_ms=now_ms, rng=rng
        )
        yield fleet_board.Board(measured, behavior=plan.behavior, rng=rng)


def _rng(plan: FleetPlan, purpose: str) -> Random:
    return Random(f"{plan.seed} {purpose}")  # noqa: S311 - mischief, no secret


def _fields(answer: Any, *names: str) -> list[Any]:
    if not isinstance(answer, dict) or not answer.keys() >= set(names):
        raise fleet_wire.ServerRefusedError(
            f"The server's response has no {' and '.join(names)}. Does the --url serve Telemetry?"
        )
    return [answer[name] for name in names]

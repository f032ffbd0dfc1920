"""Job leases, and the states of circuit breakers, as items of a DynamoDB table."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sandyard.kit.circuits import CircuitState
from sandyard.kit.dynamo.client import ConditionFailedError
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item
from sandyard.kit.jobs import JobRun

_NO_JOB = "write-check"


class DynamoJobLeases:
    """`key` returns the key of a job's item, for tables whose key differs from the pool's."""

    def __init__(self, table: Table, *, key: Callable[[str], Item] | None = None) -> None:
        self._table = table
        self._key = key or _key

    async def acquire(
        self,
        job: str,
        *,
        holder: str,
        now: float,
        held_until: float,
        unless_started_after: float | None = None,
    ) -> bool:
        is_free = "(attribute_not_exists(holder) OR held_until <= :now)"
        has_died = "(attribute_exists(holder) AND held_until <= :now)"
        is_due = f"(attribute_not_exists(started_at) OR started_at <= :since OR {has_died})"
        try:
            await self._table.update(
                self._key(job),
                "SET holder = :holder, held_until = :until, started_at = :now",
                {
                    "holder": holder,
                    "until": held_until,
                    "now": now,
                    "since": unless_started_after,
                },
                condition=is_free if unless_started_after is None else f"{is_free} AND {is_due}",
            )
        except ConditionFailedError as refused:
            # Our own earlier attempt whose response was lost looks the same.
            item = refused.item or {}
            return item.get("holder") == holder and item.get("started_at") == now
        return True

    async def renew(self, job: str, *, holder: str, held_until: float) -> bool:
        return await self._change(job, holder, "SET held_until = :until", until=held_until)

    async def release(self, job: str, *, holder: str, finished_at: float | None) -> None:
        finished = "" if finished_at is None else "SET finished_at = :finished "
        await self._change(
            job, holder, f"{finished}REMOVE holder, held_until", finished=finished_at
        )

    async def _change(self, job: str, holder: str, expression: str, **values: float | None) -> bool:
        """False if this holder no longer has the job."""
        try:
            await self._table.update(
                self._key(job),
                expression,
                {**values, "holder": holder},
                condition="holder = :holder",
            )
        except ConditionFailedError:
            return False
        return True

    async def runs(self, jobs: Sequence[str]) -> Mapping[str, JobRun]:
        names = ("started_at", "finished_at", "held_until")
        keys = {job: self._key(job) for job in jobs}
        found = await self._table.get_many(list(keys.values()))
        return {
            job: JobRun(*(item.get(name) for name in names))
            for job, key in keys.items()
            for item in found
            if key.items() <= item.items()
        }

    async def touch(self, *, now: float) -> None:
        await self._table.probe_update(self._key(_NO_JOB), "SET finished_at = :now", {"now": now})


def _key(job: str) -> Item:
    return {"PK": f"JOB#{job}", "SK": "META"}


class DynamoCircuits:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def find(self, circuit: str) -> CircuitState:
        return _state_of(await self._table.get(_circuit_key(circuit)) or {})

    async def move(self, circuit: str, state: str, opened_at: float | None) -> CircuitState:
        opened = "REMOVE opened_at" if opened_at is None else ", opened_at = :at"
        return await self._change(
            circuit, f"SET #state = :state {opened}", state=state, at=opened_at
        )

    async def count_failure(self, circuit: str) -> CircuitState:
        return await self._change(circuit, "ADD failures :one", one=1)

    async def forget_failures(self, circuit: str) -> CircuitState:
        return await self._change(circuit, "SET failures = :none", none=0)

    async def _change(self, circuit: str, expression: str, **values: Any) -> CircuitState:
        return _state_of(await self._table.update(_circuit_key(circuit), expression, values))


def _circuit_key(circuit: str) -> Item:
    return {"PK": f"CIRCUIT#{circuit}", "SK": "META"}


def _state_of(item: Item) -> CircuitState:
    return CircuitState(
        item.get("state", "closed"), int(item.get("failures", 0)), item.get("opened_at")
    )

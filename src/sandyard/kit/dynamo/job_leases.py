"""Job leases as items of a DynamoDB table."""

from collections.abc import Callable, Mapping, Sequence

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
        try:
            await self._table.update(
                self._key(job),
                "SET held_until = :until",
                {"until": held_until, "holder": holder},
                condition="holder = :holder",
            )
        except ConditionFailedError:
            return False
        return True

    async def release(self, job: str, *, holder: str, finished_at: float | None) -> None:
        finished = "" if finished_at is None else "SET finished_at = :finished "
        try:
            await self._table.update(
                self._key(job),
                f"{finished}REMOVE holder, held_until",
                {"finished": finished_at, "holder": holder},
                condition="holder = :holder",
            )
        except ConditionFailedError:
            return

    async def finished(self, jobs: Sequence[str]) -> Mapping[str, float]:
        items = await self._items(jobs)
        return {job: item["finished_at"] for job, item in items.items() if "finished_at" in item}

    async def runs(self, jobs: Sequence[str]) -> Mapping[str, JobRun]:
        names = ("started_at", "finished_at", "held_until")
        items = await self._items(jobs)
        return {job: JobRun(*(item.get(name) for name in names)) for job, item in items.items()}

    async def _items(self, jobs: Sequence[str]) -> Mapping[str, Item]:
        keys = {job: self._key(job) for job in jobs}
        found = await self._table.get_many(list(keys.values()))
        return {
            job: item for job, key in keys.items() for item in found if key.items() <= item.items()
        }

    async def touch(self, *, now: float) -> None:
        await self._table.probe_update(self._key(_NO_JOB), "SET finished_at = :now", {"now": now})


def _key(job: str) -> Item:
    return {"PK": f"JOB#{job}", "SK": "META"}

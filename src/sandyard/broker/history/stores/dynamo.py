"""The pool's samples of the last day on DynamoDB: one partition, by minute, without index keys."""

from collections.abc import Sequence

from sandyard.broker.history.model import KEPT_SEC, PoolSample
from sandyard.broker.pool.model import Status
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item

_HISTORY = "HISTORY"


class DynamoHistoryStore:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def samples(self, *, since: int) -> Sequence[PoolSample]:
        items = await self._table.query_all(
            condition="PK = :history AND SK >= :since",
            values={"history": _HISTORY, "since": _minute(since)},
        )
        return [_sample_of(item) for item in items]

    async def record(self, sample: PoolSample, *, kept_from: int) -> None:  # noqa: ARG002 - see below
        """DynamoDB removes old samples by their `ttl`; queries specify the first one that they
        want."""
        counts = {str(status): count for status, count in sample.counts.items()}
        await self._table.put(
            {
                "PK": _HISTORY,
                "SK": _minute(sample.at),
                "at": sample.at,
                "counts": counts,
                "waiting": sample.waiting,
                "leases": sample.leases,
                "ttl": sample.at + KEPT_SEC,
            }
        )


def _minute(at: int) -> str:
    """Sorts by time."""
    return f"{at:012}"


def _sample_of(item: Item) -> PoolSample:
    counts = {status: int(item["counts"].get(str(status), 0)) for status in Status}
    return PoolSample(int(item["at"]), counts, int(item["waiting"]), int(item["leases"]))

"""The store of variables. Every method raises UnavailableError if it is unavailable."""

from collections.abc import Sequence
from typing import Protocol

from sandyard.platform.changes.apply import TransitionStore
from sandyard.platform.quotas.model import CountQuota
from sandyard.platform.variables.model import Variable


class VariableStore(TransitionStore, Protocol):
    """`apply` returns False also if one of this name was made meanwhile."""

    async def of_holders(self, holder_ids: Sequence[str]) -> Sequence[Variable]:
        """All variables of these projects and sandboxes, by name."""
        ...

    async def find_variable(self, holder_id: str, name: str) -> Variable | None: ...

    async def read_count_quota(self, about: CountQuota) -> CountQuota: ...

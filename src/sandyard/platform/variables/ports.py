"""The store of variables. Every method raises UnavailableError if it is unavailable."""

from collections.abc import Sequence
from typing import Any, Protocol

from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import Transition
from sandyard.platform.quotas.model import CountQuota
from sandyard.platform.variables.model import Variable


class VariableStore(Protocol):
    async def of_holders(self, holder_ids: Sequence[str]) -> Sequence[Variable]:
        """All variables of these projects and sandboxes, by name."""
        ...

    async def find_variable(self, holder_id: str, name: str) -> Variable | None: ...

    async def read_count_quota(self, about: CountQuota) -> CountQuota: ...

    async def apply(
        self, *transitions: Transition[Any], extra_events: Sequence[Event] = ()
    ) -> bool:
        """Compare and set; False also if one of this name was made meanwhile."""
        ...

"""The store of variables. Every method raises UnavailableError if it is unavailable."""

from collections.abc import Sequence
from typing import Protocol

from sandyard.kit.paging import Page
from sandyard.platform.entities.apply import TransitionStore
from sandyard.platform.entities.model import Listing
from sandyard.platform.variables.model import Variable, VariableFilter


class VariableStore(TransitionStore, Protocol):
    """`apply` returns False also if one of this name was made meanwhile."""

    async def of_holders(self, holder_ids: Sequence[str]) -> Sequence[Variable]:
        """All variables of these projects and sandboxes, by name."""
        ...

    async def page(self, listing: Listing[VariableFilter]) -> Page[Variable]: ...

    async def find_variable(self, holder_id: str, name: str) -> Variable | None: ...

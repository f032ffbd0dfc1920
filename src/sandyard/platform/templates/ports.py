"""The store of templates. Every method raises UnavailableError if it is unavailable."""

from collections.abc import Set as AbstractSet
from typing import Protocol

from sandyard.platform.entities.apply import OwnedStore
from sandyard.platform.templates.model import Template


class RootFileSystems(Protocol):
    async def names(self) -> AbstractSet[str]:
        """The names of the root file systems available to sandboxes here."""


class TemplateStore(OwnedStore[Template], Protocol):
    """`apply` raises TemplateNameTakenError."""

    async def official_names(self) -> AbstractSet[str]:
        """The names of official templates, including deleted ones."""

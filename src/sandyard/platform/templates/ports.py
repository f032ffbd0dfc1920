"""The store of templates. Every method raises UnavailableError if it is unavailable."""

from collections.abc import Set as AbstractSet
from typing import Protocol

from sandyard.platform.entities.apply import OwnedStore
from sandyard.platform.templates.model import Template


class RootFileSystems(Protocol):
    async def names(self) -> AbstractSet[str]:
        """The names of the environments that the operator has imported here."""

    async def require_image(self, account_id: str, image_id: str) -> None:
        """Raise unless the account's templates may have this image, and it is ready."""


class TemplateStore(OwnedStore[Template], Protocol):
    """`apply` raises TemplateNameTakenError."""

    async def official_names(self) -> AbstractSet[str]:
        """The names of official templates, including deleted ones."""

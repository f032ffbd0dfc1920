"""How many things of a kind an account may have, decided without any I/O."""

from dataclasses import dataclass, replace
from enum import StrEnum

from sandyard.kit.errors import ConflictError


class ResourceKind(StrEnum):
    PROJECTS = "projects"
    SANDBOXES = "sandboxes"
    TEMPLATES = "templates"
    VARIABLES = "variables"


@dataclass(frozen=True, slots=True)
class CountQuota:
    """A fact: whether the account has all the things of this kind that it may have. It stays true
    while others are made and leave some, so that makers seldom have to decide again."""

    kind: ResourceKind
    account_id: str
    limit: int
    is_used_up: bool = False

    def with_count(self, count: int) -> "CountQuota":
        """The same, given how many there are."""
        return replace(self, is_used_up=count >= self.limit)

    def require(self, error: type[ConflictError]) -> None:
        """Raise the error if there may be no more."""
        if self.is_used_up:
            raise error(details={"limit": self.limit})

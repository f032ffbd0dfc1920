"""How many entities of a kind an account may have, decided without any I/O."""

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
    """A fact: whether the account has reached its limit of this kind. It stays true while others
    are made below the limit, so that creations seldom have to be decided again."""

    kind: ResourceKind
    account_id: str
    limit: int
    is_used_up: bool = False

    def with_count(self, count: int) -> "CountQuota":
        """The same with this count."""
        return replace(self, is_used_up=count >= self.limit)

    def require(self, error: type[ConflictError]) -> None:
        """Raise the error if the limit is reached."""
        if self.is_used_up:
            raise error(details={"limit": self.limit})

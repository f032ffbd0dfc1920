"""What an account may have and use, and what it uses now, decided without any I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from sandyard.kit.errors import ConflictError


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    resource: str
    """The name has the unit, unless it is a count."""
    in_use: int | float
    limit: int | float | None
    """None if there is no limit."""


class ResourceKind(StrEnum):
    IMAGES = "images"
    PROJECTS = "projects"
    SANDBOXES = "sandboxes"
    TEMPLATES = "templates"
    VARIABLES = "variables"
    VOLUMES = "volumes"


@dataclass(frozen=True, slots=True)
class CountQuota:
    """A fact: whether the account has reached its limit of this kind. It stays true while others
    are made below the limit, so that creations seldom have to be decided again."""

    kind: ResourceKind
    account_id: str
    limit: int
    is_used_up: bool = False

    def with_count(self, count: int) -> "CountQuota":
        return replace(self, is_used_up=count >= self.limit)

    def require(self, error: type[ConflictError]) -> None:
        if self.is_used_up:
            message = f"{error().message} The limit is {self.limit}."
            raise error(message, details={"limit": self.limit})


@dataclass(frozen=True, slots=True)
class Resources:
    """The total resources of an account's active sandboxes and its stored files, or their limit:
    its quota."""

    sandboxes: int
    cpu: float
    memory_gb: float
    storage_gb: float
    """Each workspace counts with all that it may store, other files with their size."""


@dataclass(frozen=True, slots=True)
class QuotaRequest:
    """A request for one more sandbox of this size beside the account's active ones."""

    account_id: str
    cpu: float
    memory_gb: float
    quota: Resources
    storage_gb: float = 0.0
    """What a sandbox may store."""
    stored_elsewhere_gb: float = 0.0
    """What other parts store for the account."""


@dataclass(frozen=True, slots=True)
class QuotaCheck:
    """A fact: which parts of its quota the account would exceed. It stays true while others start
    within it, so that starts of one account seldom have to be decided again."""

    request: QuotaRequest
    exceeded: Mapping[str, Mapping[str, float]]

    def require(self, error: type[ConflictError]) -> None:
        if self.exceeded:
            raise exceeded(self.exceeded, error)


def exceeded(
    numbers: Mapping[str, Mapping[str, float]], error: type[ConflictError]
) -> ConflictError:
    """The error, with the limit, the use and the request of each resource."""
    shown = [
        f"{each['in_use']:g} of {each['limit']:g} {name} in use, {each['asked']:g} needed"
        for name, each in numbers.items()
    ]
    return error(f"{error().message} Now: {'; '.join(shown)}.", details=dict(numbers))


def check_quota(request: QuotaRequest, in_use: Resources) -> QuotaCheck:
    wanted = {
        "sandboxes": 1,
        "cpu": request.cpu,
        "memory_gb": request.memory_gb,
        "storage_gb": request.storage_gb,
    }
    exceeded = {
        name: {"limit": limit, "in_use": taken, "asked": wanted[name]}
        for name in wanted
        if (taken := getattr(in_use, name)) + wanted[name] > (limit := getattr(request.quota, name))
    }
    return QuotaCheck(request, exceeded)

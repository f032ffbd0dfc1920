"""To which hosts a secret is bound: then it never enters a sandbox."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sandyard.kit.ids import resource_id
from sandyard.runtime.network_model import SecretUse
from sandyard.runtime.secrets_model import USUAL_HEADERS, BoundSecret


@dataclass(frozen=True, slots=True)
class Binding:
    """As `BoundSecret` describes."""

    hosts: Sequence[str]
    methods: Sequence[str] = ()
    paths: Sequence[str] = ()
    headers: Sequence[str] = USUAL_HEADERS
    query: Sequence[str] = ()
    sets_header: str | None = None
    most_requests: int | None = None
    """In all sandboxes together, since the secret was made."""
    most_bytes: int | None = None
    placeholder: str = ""
    """What programs have instead; the same for as long as the secret exists, and in copies."""

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> "Binding":
        return cls(**recorded)

    def recorded(self) -> Mapping[str, Any]:
        """As stored with the variable."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    def with_placeholder(self, known: str | None) -> "Binding":
        made = self.placeholder or known or f"sandyard_{resource_id('secret').replace('-', '_')}"
        return replace(self, placeholder=made)

    @property
    def has_budget(self) -> bool:
        return (self.most_requests, self.most_bytes) != (None, None)

    def secret(
        self, variable_id: str, name: str, value: str, used: SecretUse | None
    ) -> BoundSecret:
        """For one run, with what others have left of its budgets."""
        requests, size = (0, 0) if used is None else (used.requests, used.bytes)
        return BoundSecret(
            variable_id,
            name,
            self.placeholder,
            value,
            tuple(self.hosts),
            tuple(self.methods),
            tuple(self.paths),
            tuple(each.lower() for each in self.headers),
            tuple(self.query),
            self.sets_header,
            None if self.most_requests is None else max(0, self.most_requests - requests),
            None if self.most_bytes is None else max(0, self.most_bytes - size),
        )

    def is_used_up(self, *, requests: int, size: int) -> bool:
        budgets = ((self.most_requests, requests), (self.most_bytes, size))
        return any(most is not None and used >= most for most, used in budgets)


@dataclass(frozen=True, slots=True)
class SecretVariable:
    """For a new sandbox."""

    name: str
    value: str = field(repr=False)
    binding: Binding | None = None

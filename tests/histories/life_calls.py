"""What callers of sandboxes and previews were answered, kept so that it can be judged again."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf


@dataclass(frozen=True, slots=True)
class LifeCall:
    """One call about one sandbox or one project's preview."""

    kind: str
    subject: str
    begin: float
    end: float = inf
    """Infinite if nobody knows whether it was done."""
    outcome: str = ""
    """`ok`, or the code of what was refused; empty if there was no answer."""
    status: str = ""
    number: int = 0
    """Of the attempt that the answer tells of."""
    made: str = ""
    """The id of the preview's sandbox that the answer tells of."""

    def __str__(self) -> str:
        end = "never" if self.end == inf else f"{self.end:.3f}"
        told = f"{self.outcome} {self.status} {self.number or ''}{self.made}".strip()
        return f"{self.kind} ({self.begin:.3f} to {end}): {told or 'no answer'}"


@dataclass(slots=True)
class LifeHistory:
    part: str
    calls: list[LifeCall] = field(default_factory=list)

    def of_kind(self, kind: str) -> Sequence[LifeCall]:
        return [each for each in self.calls if each.kind == kind]

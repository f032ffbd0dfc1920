"""Which sandboxes a listing has. No I/O."""

from dataclasses import dataclass

from sandyard.broker.pool.model import Sandbox, Status


@dataclass(frozen=True, slots=True)
class SandboxFilter:
    status: Status | None = None
    track: str | None = None
    """The current or last track."""
    name_prefix: str = ""
    search: str = ""
    """Prefix of an id, a track or a name."""

    def matches(self, row: Sandbox) -> bool:
        """Matches whole ids and tracks only, as a search by key does."""
        return (
            self.status in (None, row.status)
            and self.track in (None, row.allocated_to_track)
            and row.name.startswith(self.name_prefix)
            and (row.name.startswith(self.search) or self.is_key_of(row))
        )

    def is_key_of(self, row: Sandbox) -> bool:
        return self.search in (row.sandbox_id, row.allocated_to_track)

"""The kinds of events of all parts, and filters by kind: `lease.created`, `lease.*` or `*`."""

from collections.abc import Iterable
from difflib import get_close_matches

from sandyard.kit.errors import InvalidError

ANY_KIND = "*"
_KINDS = """
account.activated account.created account.deactivated account.deleted account.role_changed
account.updated account.verification_requested account.verified bill.charged bill.corrected
bill.created calendar.changed client.changed client.created client.deleted client.token_added
client.token_revoked deletion.failed deletion.requested deletion.retried device.deleted
device.registered device.renamed device.updated files.changed image.deleted image.failed image.ready
image.requested image.storage_counted invitation.sent key.activated
key.created key.deactivated key.revoked key.updated lease.created lease.ended lease.extended
lease.probed lease.replaced login.failed login.succeeded logins.ended notification.created
notification.deleted notification.read password.changed password.rehashed password.reset
password.reset_requested pool.cannot_grow pool.created pool.creating pool.creation_failed
pool.empty pool.low pool.provider_changed pool.provider_set pool.recovered pool.settled
pool.sufficient preview.abandoned preview.attempt_shortened preview.created preview.ended
preview.extended preview.migrated preview.removed preview.requested preview.rolled_back
preview.synced probe.failed probe.passed program.failed program.running program.starting
program.stopped project.archived project.created project.deleted
project.made_default project.unarchived project.updated reservation.cancelled reservation.created
reservation.ended reservation.filled reservation.kept reservation.lost reservation.short
sandbox.created sandbox.deadline_moved sandbox.deleted sandbox.discovered sandbox.held
sandbox.hold_overdue sandbox.missing sandbox.quarantined sandbox.recycled
sandbox.recycling_requested sandbox.released sandbox.renamed sandbox.reserved sandbox.restored
sandbox.start_failed sandbox.started sandbox.starting sandbox.stopped sandbox.timed_out
sandbox.unreserved sandbox.updated
ssh_key.added ssh_key.removed
signup.created signup.expired signup.renewed signup.verified snapshot.dropped
snapshot.expiry_warned snapshot.recovered snapshot.replaced snapshot.storage_counted sync.failed
sync.failing
sync.recovered sync.succeeded template.created template.deleted template.storage_counted
template.updated
ticket.created ticket.dropped ticket.moved ticket.ready ticket.served ticket.waiting
usage.billed usage.capped usage.closed usage.deadline_moved usage.opened usage.recorded
variable.budget_reached variable.created variable.removed variable.updated version.published
version.unpublished versions.removed domain.added domain.removed
volume.created volume.deleted volume.resized volume.storage_counted
webhook.changed webhook.created webhook.deleted
webhook.disabled webhook.secret_rotated
"""
EVENT_KINDS = frozenset(_KINDS.split())
"""As in docs/events.md."""


class UnknownEventKindError(InvalidError):
    """There is no such kind of event. docs/events.md lists all kinds."""

    def __init__(self, kind: str) -> None:
        known = {*EVENT_KINDS, *(f"{each.partition('.')[0]}.*" for each in EVENT_KINDS)}
        nearest = next(iter(get_close_matches(kind, sorted(known), n=1)), None)
        hint = f" The nearest one is `{nearest}`." if nearest else ""
        super().__init__(
            f"There is no kind of event `{kind}`.{hint} docs/events.md lists all kinds.",
            details={"kind": kind, "nearest": nearest},
        )


def matches(wanted: str, kind: str) -> bool:
    """Whether this is the wanted kind, or one of those that the wanted prefix stands for."""
    if wanted.endswith(ANY_KIND):
        return kind.startswith(wanted.removesuffix(ANY_KIND))
    return kind == wanted


def require_known_kinds(wanted: Iterable[str]) -> None:
    """Raises UnknownEventKindError for the first that no event can have."""
    for each in wanted:
        if not any(matches(each, kind) for kind in EVENT_KINDS):
            raise UnknownEventKindError(each)

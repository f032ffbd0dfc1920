"""The pool's other entities as DynamoDB items, one each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeVar

from sandyard.broker.clients.model import SUBJECT_PREFIX, Client
from sandyard.broker.delivery.model import Webhook
from sandyard.broker.provider.model import Autoscaler, ProviderBinding
from sandyard.broker.queue.model import QueueOrder, Ticket
from sandyard.broker.reservations.model import Calendar, Reservation
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.transitions import change_action
from sandyard.kit.dynamo.values import Item
from sandyard.kit.ids import is_resource_id

T = TypeVar("T")

QUEUE = "QUEUE"
WEBHOOK = "WEBHOOK"
CLIENT = "CLIENT"
OPEN = "RESERVATIONS"
CALENDAR = "CALENDAR"
SINGLE_KEYS: Mapping[type, Item] = {
    ProviderBinding: {"PK": "PROVIDER", "SK": "META"},
    Calendar: {"PK": "BOOKINGS", "SK": "META"},
    Autoscaler: {"PK": "AUTOSCALER", "SK": "META"},
}
"""Of the entities of which a pool has one."""


def ticket_key(ticket: Ticket) -> Item:
    return queue_key(ticket.queue_order)


def queue_key(order: QueueOrder) -> Item:
    """All tickets are one partition, in queue order."""
    urgency, ticket_id = order
    return {"PK": QUEUE, "SK": f"{urgency}#{ticket_id}"}


def ticket_lookup_key(track_id: str, key: str) -> Item:
    """Refers to the ticket of this track and key, of which there is at most one."""
    return {"PK": f"TICKET#{track_id}#{key}", "SK": "META"}


def webhook_key(webhook_id: str) -> Item:
    """All webhooks are one partition."""
    return {"PK": WEBHOOK, "SK": webhook_id}


def client_key(name: str) -> Item:
    """All clients are one partition."""
    return {"PK": CLIENT, "SK": name}


def other_keys(subjects: Sequence[str]) -> list[Item]:
    """The keys of webhooks and clients among the subjects."""
    webhooks = [webhook_key(each) for each in subjects if is_resource_id("whk", each)]
    names = [each.removeprefix(SUBJECT_PREFIX) for each in subjects if ":" in each]
    return webhooks + [client_key(each) for each in names]


def subject_of_item(item: Item) -> str:
    singles = ("pool", "calendar", "autoscaler")
    names = ("sandbox_id", *singles, "webhook_id", "client_id", "reservation_id")
    return str(next(item[name] for name in names if name in item))


def entity_of(kind: type[T], item: Item) -> T:
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: item[name] for name in names if name in item})


async def find_entity(table: Table, kind: type[T], key: Item) -> T | None:
    item = await table.get(key)
    return entity_of(kind, item) if item else None


async def entities_in(table: Table, kind: type[T], partition: str) -> list[T]:
    items = await table.query_all(condition="PK = :key", values={"key": partition})
    return [entity_of(kind, item) for item in items]


def reservation_key(reservation_id: str) -> Item:
    return {"PK": f"RESERVATION#{reservation_id}", "SK": "META"}


def open_key(reservation_id: str) -> Item:
    """Reservations that have not ended are one partition."""
    return {"PK": OPEN, "SK": reservation_id}


def calendar_key(reservation: Reservation) -> Item:
    """All reservations are one partition, ordered by their ends."""
    return {"PK": CALENDAR, "SK": f"{reservation.ends_at:012}#{reservation.reservation_id}"}


def entity_actions(table: Table, transition: Transition[Any]) -> list[dict[str, Any]]:
    before: Any = transition.before
    after: Any = transition.after
    actions = _beside(table, before, after)
    old_key, key = (None if each is None else _key_of(each) for each in (before, after))
    item = {} if after is None else asdict(after)
    if key is not None and key == old_key:
        return [change_action(table, key, asdict(before), item), *actions]
    if key is not None:
        new = {**key, **item}
        actions = [table.put_action(new, condition="attribute_not_exists(PK)"), *actions]
    if old_key is not None:
        unchanged, condition = {"before": before.sequence}, "#sequence = :before"
        actions = [table.delete_action(old_key, condition=condition, values=unchanged), *actions]
    return actions


def _beside(table: Table, before: Any, after: Any) -> list[dict[str, Any]]:
    match before or after:
        case Ticket() as ticket:
            return _ticket_actions(table, ticket, before, after)
        case Reservation() as reservation:
            return _reservation_actions(table, reservation, before, after)
    return []


def _ticket_actions(table: Table, ticket: Ticket, before: Any, after: Any) -> list[dict[str, Any]]:
    """A ticket's lookup item is created, moved and deleted with it."""
    lookup_key = ticket_lookup_key(*ticket.lease_key)
    if after is None:
        return [table.delete_action(lookup_key, condition="attribute_exists(PK)", values={})]
    if before and before.queue_order == after.queue_order:
        return []
    item = {**lookup_key, "ticket_sk": ticket_key(after)["SK"]}
    is_new = "attribute_exists(PK)" if before else "attribute_not_exists(PK)"
    return [table.put_action(item, condition=is_new)]


def _reservation_actions(
    table: Table, reservation: Reservation, before: Reservation | None, after: Reservation
) -> list[dict[str, Any]]:
    """A new reservation is open, unless it has ended, and in the calendar; one that ends is no
    longer open."""
    is_open = open_key(reservation.reservation_id)
    if before is None:
        entry = calendar_key(reservation) | {
            "reservation_id": reservation.reservation_id,
            "starts_at": reservation.starts_at,
        }
        new = "attribute_not_exists(PK)"
        entries = [entry] if after.ended_at is not None else [is_open, entry]
        return [table.put_action(each, condition=new) for each in entries]
    if before.ended_at is None and after.ended_at is not None:
        return [table.delete_action(is_open, condition="attribute_exists(PK)", values={})]
    return []


_KEYS: dict[type, Callable[[Any], Item]] = {
    Ticket: ticket_key,
    Webhook: lambda webhook: webhook_key(webhook.webhook_id),
    Client: lambda client: client_key(client.name),
    Reservation: lambda reservation: reservation_key(reservation.reservation_id),
}


def _key_of(entity: Any) -> Item:
    return SINGLE_KEYS.get(type(entity)) or _KEYS[type(entity)](entity)

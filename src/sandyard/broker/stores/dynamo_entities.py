"""The pool's other entities as DynamoDB items, one each."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any, TypeVar

from sandyard.broker.clients.model import SUBJECT_PREFIX, Client
from sandyard.broker.delivery.webhook_model import Webhook
from sandyard.broker.provider.autoscaling_model import Autoscaler
from sandyard.broker.provider.model import ProviderBinding
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
BINDING_KEY: Item = {"PK": "PROVIDER", "SK": "META"}
CALENDAR_KEY: Item = {"PK": "BOOKINGS", "SK": "META"}
AUTOSCALER_KEY: Item = {"PK": "AUTOSCALER", "SK": "META"}


def binding_of(item: Item) -> ProviderBinding:
    return ProviderBinding(item["provider"], sequence=item["sequence"])


def ticket_key(ticket: Ticket) -> Item:
    return queue_key(ticket.queue_order)


def queue_key(order: QueueOrder) -> Item:
    """All tickets are one partition, in queue order."""
    urgency, ticket_id = order
    return {"PK": QUEUE, "SK": f"{urgency}#{ticket_id}"}


def ticket_lookup_key(track_id: str, key: str) -> Item:
    """Refers to the ticket of this track and key, of which there is at most one."""
    return {"PK": f"TICKET#{track_id}#{key}", "SK": "META"}


def ticket_of(item: Item) -> Ticket:
    return entity_of(Ticket, item)


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
    names = ("sandbox_id", "pool", "autoscaler", "webhook_id", "client_id")
    return str(next(item[name] for name in names if name in item))


def entity_of(kind: type[T], item: Item) -> T:
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: item[name] for name in names if name in item})


def reservation_key(reservation_id: str) -> Item:
    return {"PK": f"RESERVATION#{reservation_id}", "SK": "META"}


def open_key(reservation_id: str) -> Item:
    """Reservations that have not ended are one partition."""
    return {"PK": OPEN, "SK": reservation_id}


def calendar_key(reservation: Reservation) -> Item:
    """All reservations are one partition, ordered by their ends."""
    return {"PK": CALENDAR, "SK": f"{reservation.ends_at:012}#{reservation.reservation_id}"}


def reservation_of(item: Item) -> Reservation:
    return entity_of(Reservation, item)


def autoscaler_of(item: Item) -> Autoscaler:
    return entity_of(Autoscaler, item)


def calendar_of(item: Item) -> Calendar:
    return entity_of(Calendar, item)


def entity_actions(
    table: Table, transition: Transition[Any], write_id: str
) -> list[dict[str, Any]]:
    """Write an entity that is one item, on condition that it has not changed."""
    before: Any = transition.before
    after: Any = transition.after
    beside = _beside(table, before, after)
    if after is None:
        unchanged = {"before": before.sequence}
        condition = "#sequence = :before"
        return [table.delete_action(_key(before), condition=condition, values=unchanged), *beside]
    item = {**asdict(after), "write_id": write_id}
    if before is None:
        new = {**_key(after), **item}
        return [table.put_action(new, condition="attribute_not_exists(PK)"), *beside]
    return [change_action(table, _key(after), asdict(before), item), *beside]


def _beside(table: Table, before: Any, after: Any) -> list[dict[str, Any]]:
    """Writes for the entity's lookup items."""
    match before or after:
        case Ticket() as ticket:
            return _ticket_actions(table, ticket, before, after)
        case Reservation() as reservation:
            return _reservation_actions(table, reservation, before, after)
    return []


def _ticket_actions(table: Table, ticket: Ticket, before: Any, after: Any) -> list[dict[str, Any]]:
    """A ticket's lookup item is created and deleted with it."""
    if before and after:
        return []
    lookup_key = ticket_lookup_key(*ticket.lease_key)
    if before is None:
        item = {**lookup_key, "ticket_sk": ticket_key(ticket)["SK"]}
        return [table.put_action(item, condition="attribute_not_exists(PK)")]
    return [table.delete_action(lookup_key, condition="attribute_exists(PK)", values={})]


def _reservation_actions(
    table: Table, reservation: Reservation, before: Reservation | None, after: Reservation
) -> list[dict[str, Any]]:
    """A new reservation is open and in the calendar; one that has ended is no longer open."""
    is_open = open_key(reservation.reservation_id)
    if before is None:
        entry = calendar_key(reservation) | {
            "reservation_id": reservation.reservation_id,
            "starts_at": reservation.starts_at,
        }
        new = "attribute_not_exists(PK)"
        return [table.put_action(each, condition=new) for each in (is_open, entry)]
    if before.ended_at is None and after.ended_at is not None:
        return [table.delete_action(is_open, condition="attribute_exists(PK)", values={})]
    return []


def _key(entity: Any) -> Item:
    match entity:
        case ProviderBinding():
            return BINDING_KEY
        case Calendar():
            return CALENDAR_KEY
        case Autoscaler():
            return AUTOSCALER_KEY
        case Ticket():
            return ticket_key(entity)
        case Webhook():
            return webhook_key(entity.webhook_id)
        case Client():
            return client_key(entity.name)
        case Reservation():
            return reservation_key(entity.reservation_id)
    raise TypeError(f"{type(entity).__name__} is not an item of the pool")

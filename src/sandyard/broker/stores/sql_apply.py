"""Transitions that belong together in SQL: of sandboxes and other entities of the pool."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from sandyard.broker.clients.model import Client
from sandyard.broker.delivery.webhook_model import Webhook
from sandyard.broker.pool.model import Sandbox, Tombstone
from sandyard.broker.pool.stores.sql_rows import EVENTS, apply_transitions
from sandyard.broker.provider.autoscaling_model import Autoscaler
from sandyard.broker.provider.model import ProviderBinding
from sandyard.broker.queue.model import Ticket
from sandyard.broker.reservations.model import Calendar, Reservation
from sandyard.broker.stores.tables import (
    autoscalers,
    bindings,
    calendars,
    clients,
    reservations,
    tickets,
    webhooks,
)
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.transitions import EntityTable, SqlTransitions, StaleTransitionError

BINDINGS = EntityTable(ProviderBinding, bindings)
TICKETS = EntityTable(Ticket, tickets)
WEBHOOKS = EntityTable(Webhook, webhooks)
CLIENTS = EntityTable(Client, clients)
RESERVATIONS = EntityTable(Reservation, reservations)
CALENDARS = EntityTable(Calendar, calendars)
AUTOSCALERS = EntityTable(Autoscaler, autoscalers)


class SqlTogether:
    def __init__(self, database: Database) -> None:
        self._database = database
        kinds: list[EntityTable[Any]] = [
            *(BINDINGS, TICKETS, WEBHOOKS, CLIENTS),
            *(RESERVATIONS, CALENDARS, AUTOSCALERS),
        ]
        self._others = SqlTransitions(database, kinds, EVENTS)

    async def apply(self, transitions: Sequence[Transition[Any]]) -> bool:
        try:
            await self._database.write(lambda connection: self._write(connection, transitions))
        except (StaleTransitionError, sa.exc.IntegrityError):
            return False
        return True

    def _write(self, connection: sa.Connection, transitions: Sequence[Transition[Any]]) -> None:
        rows = [each for each in transitions if _is_of_sandbox(each)]
        self._others.write(connection, [each for each in transitions if not _is_of_sandbox(each)])
        if not all(apply_transitions(connection, rows)):
            raise StaleTransitionError


def _is_of_sandbox(transition: Transition[Any]) -> bool:
    return isinstance(transition.before or transition.after, Sandbox | Tombstone)

"""The Broker's use cases over a store, wired as the tests need them."""

import math
from typing import Any

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.leases import Leases
from sandyard.broker.pool.names import KnownNames
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.service import Broker
from sandyard.broker.pool.sync import Sync
from sandyard.broker.provider.ports import Provider
from sandyard.broker.queue.assignment import SandboxAssigner
from sandyard.broker.queue.service import Queue
from sandyard.broker.reservations.cache import ReservationCache
from sandyard.broker.reservations.service import Reservations
from sandyard.kit.clock import Clock

DAY_SEC = 24 * 3600


def new_assigner(
    store: PoolStore, *, clock: Clock, ticket_ttl_sec: float = math.inf
) -> SandboxAssigner:
    return SandboxAssigner(store, clock=clock, ticket_ttl_sec=ticket_ttl_sec)


def new_queue(store: PoolStore, *, clock: Clock, ticket_ttl_sec: float = 60) -> Queue:
    return Queue(
        store,
        clock=clock,
        ticket_ttl_sec=ticket_ttl_sec,
        assigner=SandboxAssigner(store, clock=clock, ticket_ttl_sec=ticket_ttl_sec),
        reservations=ReservationCache(store),
    )


def new_broker(
    store: PoolStore,
    *,
    clock: Clock,
    metrics: BrokerMetrics,
    queue: Queue | None = None,
    hold_sec: int = DAY_SEC,
    **options: Any,
) -> Broker:
    return Broker(
        store,
        clock=clock,
        metrics=metrics,
        waiting=queue or new_queue(store, clock=clock),
        reservations=ReservationCache(store),
        assigner=new_assigner(store, clock=clock),
        names=KnownNames(store, clock=clock),
        lease_max_sec=DAY_SEC,
        hold_sec=hold_sec,
        **options,
    )


def new_leases(
    store: PoolStore,
    *,
    clock: Clock,
    metrics: BrokerMetrics,
    lease_max_sec: int,
    max_replacements: int = 5,
    hold_sec: int = DAY_SEC,
    **options: Any,
) -> Leases:
    return Leases(
        store,
        clock=clock,
        metrics=metrics,
        lease_max_sec=lease_max_sec,
        max_replacements=max_replacements,
        hold_sec=hold_sec,
        assigner=new_assigner(store, clock=clock),
        reservations=ReservationCache(store),
        names=KnownNames(store, clock=clock),
        **options,
    )


def new_reservations(store: PoolStore, *, clock: Clock, **options: Any) -> Reservations:
    return Reservations(
        store,
        clock=clock,
        assigner=new_assigner(store, clock=clock),
        cache=ReservationCache(store),
        **options,
    )


def new_sync(
    store: PoolStore,
    provider: Provider,
    *,
    clock: Clock,
    metrics: BrokerMetrics,
    lab_duration_hours: float = 4,
    ticket_ttl_sec: float = math.inf,
) -> Sync:
    return Sync(
        store,
        provider,
        clock=clock,
        metrics=metrics,
        lab_duration_hours=lab_duration_hours,
        assigner=new_assigner(store, clock=clock, ticket_ttl_sec=ticket_ttl_sec),
    )

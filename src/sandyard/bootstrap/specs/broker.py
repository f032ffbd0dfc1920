"""The Broker's spec."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sandyard.wiring.spec import (
    BuildContext,
    JobSpec,
    PartSpec,
    SecretSpec,
    Store,
    WelcomeContext,
    get_part,
    imported,
    lazy,
)

if TYPE_CHECKING:
    from sandyard.broker.wiring.part import BrokerPart
    from sandyard.settings import Settings

_OWN_SIMULATION = "CSP_BASE_URL: must be set for --workers; each would simulate its own"


async def _build(context: BuildContext) -> "BrokerPart":
    from sandyard.bootstrap.provider import open_provider
    from sandyard.broker.wiring.part import build_broker

    provider = await context.stack.enter_async_context(
        open_provider(context.settings, context.data_dir, context.listen)
    )
    return build_broker(
        context.settings,
        data_dir=context.data_dir,
        provider_address=provider,
        registry=context.registry,
        clock=context.clock,
    )


def _store(settings: "Settings") -> Store:
    return settings.broker.pool_store


async def _check_settings(settings: "Settings", data_dir: Path) -> None:
    from sandyard.broker.wiring.part import open_pool_provider

    async with open_pool_provider(settings, data_dir) as own:
        await own.require()


def _one_process(settings: "Settings") -> str | None:
    return _OWN_SIMULATION if settings.provider.csp_base_url is None else None


def _notes(context: WelcomeContext) -> Mapping[str, str]:
    from sandyard.broker.wiring.part import BrokerPart

    return {"provider": get_part(context.parts, BrokerPart).provider_address.description}


def _examples(context: WelcomeContext) -> Iterator[str]:
    url = context.url + context.settings.broker.api_base_path
    track, admin = context.bearer("broker_api_token"), context.bearer("broker_admin_token")
    yield "Lease a sandbox, get the pool's counts:"
    yield f'  curl -X POST {url}/allocate {track} -H "X-Track-ID: demo"'
    yield f"  curl {url}/admin/stats {admin}"


SYNC = JobSpec("sync", "compare the pool with the provider's list")
CLEANUP = JobSpec("cleanup", "delete sandboxes in pending_deletion at the provider")
EXPIRY = JobSpec("expiry", "reclaim expired leases that were not released")
QUEUE = JobSpec("queue", "drop abandoned tickets, and reserve free sandboxes for the next ones")
DELIVER = JobSpec("deliver", "send pending events to the sinks, where no server does")
CLIENT_LEASES = JobSpec("client-leases", "stop counting ended leases for their clients")
RESERVATIONS = JobSpec("reservations", "fill reservations that have begun, end those that are over")
HOLDS = JobSpec("holds", "report overdue holds")
PROBE = JobSpec(
    "probe", "quarantine free sandboxes that fail their probes, restore those that pass"
)
POOL = JobSpec("pool", "report a low pool, and create missing sandboxes")
HISTORY = JobSpec("history", "sample the pool's counts once a minute")
EVENTS = JobSpec("events", "remove events after their retention")

BROKER = PartSpec(
    "broker",
    _build,
    settings=("broker", "provider", "oauth", "delivery", "dynamo"),
    routers=(
        "sandyard.broker.pool.http.tracks",
        "sandyard.broker.queue.http",
        "sandyard.broker.pool.http.leases",
        "sandyard.broker.pool.http.admin",
        "sandyard.broker.delivery.http",
        "sandyard.broker.clients.http",
        "sandyard.broker.history.http",
        "sandyard.broker.reservations.http",
    ),
    jobs=(
        *(SYNC, CLEANUP, EXPIRY, QUEUE, RESERVATIONS, HOLDS, PROBE, POOL),
        *(DELIVER, CLIENT_LEASES, HISTORY, EVENTS),
    ),
    secrets=(SecretSpec("broker_api_token"), SecretSpec("broker_admin_token")),
    store=_store,
    migrations=partial(imported, "sandyard.broker.stores.sql:MIGRATIONS"),
    tables=lazy("sandyard.broker.wiring.pool:open_pool_table"),
    adopt=lazy("sandyard.broker.wiring.pool:adopt_pool"),
    verify=lazy("sandyard.broker.wiring.part:verify_broker"),
    adopt_changes=lazy("sandyard.broker.wiring.part:adopt_broker_changes"),
    log=lazy("sandyard.broker.wiring.pool:open_broker_log"),
    check_settings=_check_settings,
    one_process=_one_process,
    notes=_notes,
    examples=_examples,
)

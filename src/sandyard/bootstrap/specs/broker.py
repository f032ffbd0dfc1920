"""The Broker's spec."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sandyard.wiring.job_specs.broker import JOBS
from sandyard.wiring.spec import BuildContext, PartSpec, WelcomeContext, get_part, imported, lazy

if TYPE_CHECKING:
    from sandyard.broker.delivery.logs import OpenLog
    from sandyard.broker.wiring.part import BrokerPart
    from sandyard.settings import Settings

_LOG_CONNECTIONS = 2
"""Connections to PostgreSQL for the log of each other part."""
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
        other_logs=_other_logs(context.settings, context.data_dir),
        clock=context.clock,
    )


def _other_logs(settings: "Settings", data_dir: Path) -> "Mapping[str, OpenLog]":
    """The logs of the other parts that this process serves; read on separate connections."""
    from sandyard.bootstrap.registry import selected_parts

    server = settings.server.model_copy(update={"database_pool_size": _LOG_CONNECTIONS})
    few = replace(settings, server=server)
    return {
        spec.name: partial(spec.log, few, data_dir)
        for spec in selected_parts(settings)
        if spec.name != "broker"
    }


async def _check_settings(settings: "Settings", data_dir: Path) -> None:
    from sandyard.bootstrap.provider import open_pool_provider

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
    jobs=JOBS,
    secrets=("broker_api_token", "broker_admin_token"),
    store_setting="pool_store",
    migrations=partial(imported, "sandyard.broker.stores.sql:MIGRATIONS"),
    tables=lazy("sandyard.broker.wiring.pool:open_pool_table"),
    verify=lazy("sandyard.broker.wiring.part:verify_broker"),
    log=lazy("sandyard.broker.wiring.pool:open_broker_log"),
    check_settings=_check_settings,
    one_process=_one_process,
    notes=_notes,
    examples=_examples,
)

"""The Broker's cloud provider: the configured one, or a built-in simulated one."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sandyard.bootstrap.copies import is_copy
from sandyard.broker.wiring.provider import ProviderAddress, provider_policy
from sandyard.kit.clock import SystemClock
from sandyard.settings import ProviderSettings, Settings
from sandyard.wiring.engines import secret
from sandyard.wiring.spec import Listen

if TYPE_CHECKING:
    from sandyard.broker.provider.service import PoolProvider
    from sandyard.tools.provider.check import ProviderCheck

SIMULATED_SANDBOXES = 25


@asynccontextmanager
async def open_provider(
    settings: Settings, data_dir: Path, listen: Listen
) -> AsyncIterator[ProviderAddress]:
    if is_copy(data_dir):
        yield ProviderAddress("http://copy.invalid", "", "not called: this data dir is a copy")
        return
    url = settings.provider.csp_base_url
    if url is not None:
        yield ProviderAddress(url, settings.secret("csp_api_token"), url)
        return
    from sandyard.tools.provider.simulator import Simulator, create_simulator_app

    token = secrets.token_urlsafe(16)
    simulator = Simulator(
        token=token,
        accepts_control=settings.secret("broker_admin_token").accepts,
        state_file=data_dir / "simulated-provider.json",
    )
    simulator.load_or_create(SIMULATED_SANDBOXES)
    async with listen(create_simulator_app(simulator)) as url:
        about = (
            f"simulated ({SIMULATED_SANDBOXES} sandboxes); with the Broker's admin token, "
            f"faults and more sandboxes at {url}/_sim"
        )
        yield ProviderAddress(url, token, about)


def provider_check(settings: ProviderSettings) -> "ProviderCheck":
    from sandyard.tools.provider.check import ProviderCheck

    return ProviderCheck(
        base_url=settings.csp_base_url or "",
        token=secret(settings.csp_api_token) or "",
        dialect=settings.csp_dialect,
        policy=replace(provider_policy(settings), attempts=1),
    )


@asynccontextmanager
async def open_pool_provider(settings: Settings, data_dir: Path) -> AsyncIterator["PoolProvider"]:
    from sandyard.broker.wiring.jobs import pool_provider
    from sandyard.broker.wiring.pool import opened_pool

    async with opened_pool(settings, data_dir) as pool:
        yield pool_provider(settings, pool.store, SystemClock())

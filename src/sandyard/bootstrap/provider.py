"""The cloud provider that the Broker talks to: the configured one, or one simulated here."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sandyard.bootstrap.engines import secret
from sandyard.bootstrap.spec import Listen
from sandyard.kit import ids
from sandyard.settings import ProviderSettings

SIMULATED_SANDBOXES = 25


def simulated_sandbox_ids() -> list[str]:
    """The ids in the pool of the sandboxes that the built-in simulated provider begins with."""
    from sandyard.broker.provider.simulator import first_external_ids

    return [ids.sandbox_id(each) for each in first_external_ids(SIMULATED_SANDBOXES)]


@dataclass(frozen=True, slots=True)
class ProviderAddress:
    url: str
    token: str
    description: str
    """For people."""


@asynccontextmanager
async def open_provider(
    settings: ProviderSettings, data_dir: Path, listen: Listen
) -> AsyncIterator[ProviderAddress]:
    url = settings.csp_base_url
    if url is not None:
        yield ProviderAddress(url, secret(settings.csp_api_token) or "", url)
        return
    from sandyard.broker.provider.simulator import Simulator, create_simulator_app

    token = secrets.token_urlsafe(16)
    simulator = Simulator(token=token, state_file=data_dir / "simulated-provider.json")
    simulator.load_or_create(SIMULATED_SANDBOXES)
    async with listen(create_simulator_app(simulator)) as url:
        about = f"simulated ({SIMULATED_SANDBOXES} sandboxes); faults at {url}/_sim"
        yield ProviderAddress(url, token, about)

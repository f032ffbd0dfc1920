"""Which provider a process talks to: the configured one, or one simulated inside it."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sandyard.broker.provider.simulator import Simulator, create_simulator_app
from sandyard.entrypoints.server import Listener, free_port
from sandyard.settings import ProviderSettings

SIMULATED_SANDBOXES = 25


@dataclass(frozen=True, slots=True)
class ProviderAddress:
    url: str
    token: str
    is_simulated: bool


@asynccontextmanager
async def provider_address(
    settings: ProviderSettings, data_dir: Path
) -> AsyncIterator[ProviderAddress]:
    if settings.csp_base_url is not None:
        given = settings.csp_api_token
        token = given.get_secret_value() if given else ""
        yield ProviderAddress(settings.csp_base_url, token, is_simulated=False)
        return
    simulator = Simulator(
        token=secrets.token_urlsafe(16), state_file=data_dir / "simulated-provider.json"
    )
    simulator.load_or_create(SIMULATED_SANDBOXES)
    listener = Listener(create_simulator_app(simulator), host="127.0.0.1", port=free_port())
    await listener.start()
    try:
        url = f"http://127.0.0.1:{listener.port}"
        yield ProviderAddress(url, simulator.token or "", is_simulated=True)
    finally:
        await listener.stop()

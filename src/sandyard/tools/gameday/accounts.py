"""An account of the Platform for a game day."""

from collections.abc import Mapping
from pathlib import Path

import httpx

from sandyard.tools.gameday.model import GameDayError
from sandyard.tools.gameday.processes import run_once, sandyard_command

_NAME = "gameday"
_PASSWORD = "a-password-of-the-gameday"  # noqa: S105 - for this run's servers on loopback


async def log_in(client: httpx.AsyncClient, url: str, data_dir: Path) -> Mapping[str, str]:
    """The headers of a new account; it is an admin, so that nobody has to confirm it."""
    address = ("--email", f"{_NAME}@example.com", "--username", _NAME)
    command = sandyard_command("users", "create-admin", "--password-stdin", *address)
    code, printed = await run_once(command, {"DATA_DIR": str(data_dir)}, text=_PASSWORD)
    if code:
        raise GameDayError(f"`sandyard users create-admin` failed: {printed[-500:]}")
    body = {"login": _NAME, "password": _PASSWORD}
    answer = await client.post(f"{url}/api/v1/auth/login", json=body)
    return {"Authorization": f"Bearer {answer.raise_for_status().json()['access_token']}"}


async def new_api_key(client: httpx.AsyncClient, url: str, headers: Mapping[str, str]) -> str:
    body = {"name": "gameday"}
    answer = await client.post(f"{url}/api/v1/api-keys", headers=headers, json=body)
    key: str = answer.raise_for_status().json()["api_key"]
    return key

"""A session in a folder of this machine."""

from pathlib import Path

import pytest

from sandyard.e2b_api.envd.machine import UserSession
from sandyard.e2b_api.envd.standalone.machine import ThisMachine

TOKEN = "the-token"


@pytest.fixture
def machine(tmp_path: Path) -> ThisMachine:
    return ThisMachine(TOKEN, home=str(tmp_path))


@pytest.fixture
async def session(machine: ThisMachine) -> UserSession:
    return await machine.open(None)

"""A real server whose machines are folders, and a running sandbox of E2B's API on it."""

import time

import pytest

from tests.integration.attacks.victims import Victim, victim_of
from tests.integration.sessions.conftest import api as api
from tests.integration.sessions.conftest import runtime as runtime
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import PlatformApi


@pytest.fixture
def clock() -> ManualClock:
    """Runs are dated by the machine's clock."""
    return ManualClock(time.time())


@pytest.fixture
async def victim(api: PlatformApi) -> Victim:
    return await victim_of(api, await api.account(), await api.admin())

import asyncio
import time

import pytest

from sandyard.kit.errors import UnavailableError
from sandyard.kit.store_states import (
    Phase,
    StoreElsewhereError,
    StoreMovingError,
    StoreState,
    WriteRight,
)

MOVING = StoreState(Phase.MOVING, "m1", "postgresql db/sandyard")
LASTS_SEC = 0.3


class Engine:
    """A store's state, and how often it was read."""

    def __init__(self) -> None:
        self.state: StoreState | None = None
        self.reads = 0
        self.is_down = False

    async def read(self) -> StoreState | None:
        self.reads += 1
        if self.is_down:
            raise UnavailableError
        await asyncio.sleep(0)
        return self.state


@pytest.fixture
def engine() -> Engine:
    return Engine()


async def use(right: WriteRight) -> None:
    if not right.is_valid():
        await right.renew()


async def test_a_right_in_use_is_renewed_in_the_background(engine: Engine) -> None:
    right = WriteRight("broker", engine.read, lasts_sec=LASTS_SEC)
    await use(right)
    ends_at = time.monotonic() + 3 * LASTS_SEC
    while time.monotonic() < ends_at:
        assert right.is_valid()
        await asyncio.sleep(0.02)
    assert 2 < engine.reads < 12


async def test_no_call_passes_once_a_withdrawn_right_has_ended(engine: Engine) -> None:
    right = WriteRight("broker", engine.read, lasts_sec=LASTS_SEC)
    await use(right)
    engine.state = MOVING
    await asyncio.sleep(LASTS_SEC)
    with pytest.raises(StoreMovingError, match="The data of broker is being moved to postgresql"):
        await use(right)


async def test_a_right_ends_while_the_store_is_down(engine: Engine) -> None:
    right = WriteRight("broker", engine.read, lasts_sec=LASTS_SEC)
    await use(right)
    engine.is_down = True
    await asyncio.sleep(LASTS_SEC)
    with pytest.raises(UnavailableError):
        await use(right)
    engine.is_down = False
    await use(right)
    assert right.is_valid()


async def test_calls_that_wait_share_a_read_and_refusals_are_kept_for_a_moment(
    engine: Engine,
) -> None:
    engine.state = MOVING
    right = WriteRight("broker", engine.read, lasts_sec=LASTS_SEC)
    calls = [use(right) for _ in range(20)]
    refused = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(each, StoreMovingError) for each in refused)
    with pytest.raises(StoreMovingError):
        await use(right)
    assert engine.reads == 1


@pytest.mark.parametrize("phase", [each for each in Phase if each is not Phase.OPEN])
async def test_a_store_is_used_only_while_it_is_open(engine: Engine, phase: Phase) -> None:
    engine.state = StoreState(phase, "m1", "dynamodb us-east-1 Pool")
    right = WriteRight("broker", engine.read)
    with pytest.raises(StoreMovingError, match="dynamodb"):
        await use(right)
    engine.state = StoreState(Phase.OPEN, "m1")
    await asyncio.sleep(0.6)
    await use(right)


async def test_a_store_without_a_state_is_checked_once(engine: Engine) -> None:
    checks = 0

    async def check() -> None:
        nonlocal checks
        checks += 1
        if checks == 1:
            raise StoreElsewhereError

    right = WriteRight("broker", engine.read, lasts_sec=LASTS_SEC, check_unset=check)
    with pytest.raises(StoreElsewhereError):
        await use(right)
    await asyncio.sleep(0.6)
    await use(right)
    await right.renew()
    assert checks == 2

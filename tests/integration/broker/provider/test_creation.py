"""Sandboxes that the provider is asked to create, and whether one is there."""

import pytest

from sandyard.broker.pool.model import Listed
from sandyard.broker.provider.errors import CreationNotSupportedError, ProviderUnavailableError
from sandyard.tools.provider.simulator import Faults, Simulator
from tests.integration.broker.provider.calls import DIALECTS
from tests.integration.conftest import Answers, Connect, Serve, status


async def test_one_is_created_with_its_name(
    simulator: Simulator, simulator_url: str, connect: Connect
) -> None:
    provider = connect(simulator_url)
    made = await provider.create_sandbox("sandyard-1")
    assert provider.can_create
    assert made.name == "sandyard-1"
    assert await provider.list_sandboxes() == [made]
    assert await provider.create_sandbox("sandyard-1") == made, "a repeat makes no second one"
    assert len(simulator.sandboxes) == 1


async def test_a_creation_is_sent_once_with_its_key(serve: Serve, connect: Connect) -> None:
    app = Answers(status(500), status(500))
    with pytest.raises(ProviderUnavailableError) as told:
        await connect(await serve(app)).create_sandbox("sandyard-1")
    assert told.value.reason == "POST /api/sandbox: status 500"
    [sent] = app.requests
    assert sent.headers["idempotency-key"] == "sandyard-1"


async def test_what_a_lost_answer_has_made_is_in_the_list(
    simulator: Simulator, simulator_url: str, connect: Connect
) -> None:
    simulator.faults = Faults(lost_creations=True)
    provider = connect(simulator_url)
    with pytest.raises(ProviderUnavailableError):
        await provider.create_sandbox("sandyard-1")
    assert [each.name for each in await provider.list_sandboxes()] == ["sandyard-1"]


async def test_the_infoblox_dialect_creates_none(simulator_url: str, connect: Connect) -> None:
    provider = connect(simulator_url, dialect="infoblox")
    assert not provider.can_create
    with pytest.raises(CreationNotSupportedError):
        await provider.create_sandbox("sandyard-1")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_it_says_whether_one_is_there(
    simulator: Simulator, simulator_url: str, connect: Connect, dialect: str
) -> None:
    simulator.create(2)
    [first, second] = await connect(simulator_url, dialect=dialect).list_sandboxes()
    assert isinstance(first, Listed)
    simulator.delete(second.external_id.rsplit("/", 1)[-1])
    provider = connect(simulator_url, dialect=dialect)
    assert await provider.has_sandbox(first.external_id)
    assert not await provider.has_sandbox(second.external_id)

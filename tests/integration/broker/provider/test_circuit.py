"""The circuit between the client and a provider that fails."""

import asyncio

import pytest

from sandyard.broker.provider.client import HttpProvider
from sandyard.broker.provider.errors import CircuitOpenError, ProviderUnavailableError
from sandyard.kit.free_ports import free_port
from sandyard.tools.provider.simulator import Faults, Simulator
from tests.integration.broker.provider.calls import DEADLINE_SEC, EMPTY, Call, delete_one, list_all
from tests.integration.conftest import Answers, Connect, Serve, eventually, silence, status


class TestCircuit:
    @pytest.mark.parametrize("first", [list_all, delete_one])
    @pytest.mark.parametrize("second", [list_all, delete_one])
    async def test_opens_at_the_threshold_and_then_nobody_is_asked(
        self,
        simulator: Simulator,
        simulator_url: str,
        connect: Connect,
        caplog: pytest.LogCaptureFixture,
        first: Call,
        second: Call,
    ) -> None:
        simulator.faults = Faults(outage="error")
        provider = connect(simulator_url, circuit_threshold=3, circuit_timeout_sec=3600)
        for _ in range(3):
            assert not await provider.circuit_is_open()
            with pytest.raises(ProviderUnavailableError) as failed:
                await first(provider)
            assert not isinstance(failed.value, CircuitOpenError)
        assert await provider.circuit_is_open()
        simulator.faults = Faults()
        for _ in range(5):
            with pytest.raises(CircuitOpenError) as refused:
                await second(provider)
            assert refused.value.retry_after == 3600
        assert sum(simulator.calls.values()) == 3
        assert "provider circuit breaker is now opened" in caplog.text

    async def test_opens_for_time_outs_and_for_a_provider_that_is_not_there(
        self, serve: Serve, connect: Connect
    ) -> None:
        app = Answers(silence)
        for url in (await serve(app), f"http://127.0.0.1:{free_port()}"):
            provider = connect(url, read_timeout_sec=1, circuit_threshold=2)
            for _ in range(2):
                with pytest.raises(ProviderUnavailableError):
                    await provider.list_sandboxes()
            with pytest.raises(CircuitOpenError):
                await provider.list_sandboxes()
        assert len(app.requests) == 2

    async def test_opens_in_the_middle_of_one_call_which_then_has_failed_and_asks_no_more(
        self, serve: Serve, connect: Connect
    ) -> None:
        app = Answers(status(500))
        provider = connect(await serve(app), attempts=10, circuit_threshold=3)
        with pytest.raises(ProviderUnavailableError) as failed:
            await provider.list_sandboxes()
        assert len(app.requests) == 3
        assert await provider.circuit_is_open()
        # CircuitOpenError says that nobody was asked, and here somebody was.
        assert not isinstance(failed.value, CircuitOpenError)

    async def test_failures_that_are_not_in_a_row_do_not_open_it(
        self, serve: Serve, connect: Connect
    ) -> None:
        bad, good = status(500), EMPTY["generic"]
        app = Answers(bad, bad, good, bad, bad, good)
        provider = connect(await serve(app), circuit_threshold=3)
        for answer in (bad, bad, good, bad, bad):
            if answer is good:
                await provider.list_sandboxes()
            else:
                with pytest.raises(ProviderUnavailableError):
                    await provider.list_sandboxes()
        await provider.list_sandboxes()
        assert len(app.requests) == 6

    async def test_sandboxes_that_are_gone_already_are_no_failures(
        self, simulator: Simulator, simulator_url: str, connect: Connect
    ) -> None:
        provider = connect(simulator_url, circuit_threshold=1)
        for number in range(5):
            await provider.delete_sandbox(f"gone-{number}")
        assert not await provider.circuit_is_open()
        assert simulator.calls["delete"] == 5

    async def test_a_call_that_its_caller_broke_off_is_no_failure_of_the_provider(
        self, serve: Serve, connect: Connect
    ) -> None:
        app = Answers(silence, silence, silence, EMPTY["generic"])
        provider = connect(await serve(app), circuit_threshold=3)
        calls = [asyncio.create_task(provider.delete_sandbox(str(n))) for n in range(3)]
        await eventually(lambda: len(app.requests) == 3)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert not await provider.circuit_is_open()
        assert list(await provider.list_sandboxes()) == []

    async def test_closes_by_itself_when_the_provider_is_well_again_after_its_time(
        self, simulator: Simulator, simulator_url: str, connect: Connect
    ) -> None:
        simulator.create(1)
        simulator.faults = Faults(outage="error")
        provider = connect(simulator_url, circuit_threshold=2, circuit_timeout_sec=0.3)
        await self._fail(provider, times=2)
        simulator.faults = Faults()
        await self._ask_until_somebody_answers(provider, simulator, calls=3)
        assert not await provider.circuit_is_open()
        assert len(await provider.list_sandboxes()) == 1
        simulator.faults = Faults(outage="error")
        await self._fail(provider, times=1)
        assert not await provider.circuit_is_open()

    async def test_one_failure_after_its_time_opens_it_again(
        self, simulator: Simulator, simulator_url: str, connect: Connect
    ) -> None:
        simulator.faults = Faults(outage="error")
        provider = connect(simulator_url, circuit_threshold=2, circuit_timeout_sec=0.3)
        await self._fail(provider, times=2)
        for calls in (3, 4):
            await self._ask_until_somebody_answers(provider, simulator, calls=calls)
            assert await provider.circuit_is_open()

    async def _fail(self, provider: HttpProvider, *, times: int) -> None:
        for _ in range(times):
            with pytest.raises(ProviderUnavailableError):
                await provider.list_sandboxes()

    async def _ask_until_somebody_answers(
        self, provider: HttpProvider, simulator: Simulator, *, calls: int
    ) -> None:
        """Ask on until the simulator has been asked `calls` times in all; all else was refused."""
        assert await provider.circuit_is_open()
        async with asyncio.timeout(DEADLINE_SEC):
            while simulator.calls["list"] < calls:
                try:
                    await provider.list_sandboxes()
                except CircuitOpenError:
                    await asyncio.sleep(0.01)
                except ProviderUnavailableError:
                    break
        assert simulator.calls["list"] == calls

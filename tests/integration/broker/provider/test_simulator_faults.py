"""The faults of the simulated provider."""

import asyncio
from typing import Any

import httpx
import pytest

from sandyard.tools.provider.simulator import Simulator
from tests.integration.broker.provider.simulators import DELETES, LISTS, NO_FAULTS, control


class TestFaults:
    @pytest.mark.parametrize(
        ("faults", "code"), [({"outage": "error"}, 503), ({"error_rate": 1}, 500)]
    )
    async def test_trouble_is_for_every_call_but_the_controls_and_ends_when_told(
        self,
        http: httpx.AsyncClient,
        simulator: Simulator,
        faults: dict[str, Any],
        code: int,
    ) -> None:
        simulator.create(2)
        [first, second] = simulator.sandboxes
        await http.patch("/_sim", json=faults)
        for path in LISTS:
            assert (await http.get(path)).status_code == code
        for path in DELETES:
            assert (await http.delete(path.format(first))).status_code == code
        assert (await control(http))["sandboxes"] == 2
        await http.patch("/_sim", json=NO_FAULTS)
        for path in LISTS:
            assert (await http.get(path)).status_code == 200
        for path, identity in zip(DELETES, (first, second), strict=True):
            assert (await http.delete(path.format(identity))).status_code == 204

    async def test_an_error_rate_is_the_share_of_calls_that_fail(
        self, http: httpx.AsyncClient, simulator: Simulator
    ) -> None:
        simulator.randomness.seed(11)
        await http.patch("/_sim", json={"error_rate": 0.3})
        codes = [(await http.get(LISTS[0])).status_code for _ in range(200)]
        assert set(codes) == {200, 500}
        assert 30 <= codes.count(500) <= 90

    async def test_a_hanging_one_answers_nothing_but_its_controls(
        self, http: httpx.AsyncClient, simulator: Simulator
    ) -> None:
        simulator.create(1)
        [identity] = simulator.sandboxes
        await http.patch("/_sim", json={"outage": "hang"})
        for method, path in (("GET", LISTS[0]), ("DELETE", DELETES[0].format(identity))):
            with pytest.raises(httpx.ReadTimeout):
                await http.request(method, path, timeout=httpx.Timeout(30, read=0.2))
        assert (await control(http))["sandboxes"] == 1

    async def test_latency_is_for_all_and_delete_latency_on_top_of_it(
        self, http: httpx.AsyncClient, simulator: Simulator
    ) -> None:
        simulator.create(1)
        [identity] = simulator.sandboxes
        await http.patch("/_sim", json={"latency": 0.1, "delete_latency": 0.2})
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert (await http.get(LISTS[0])).status_code == 200
        listed = loop.time()
        assert (await http.delete(DELETES[0].format(identity))).status_code == 204
        deleted = loop.time()
        assert listed - started >= 0.09
        assert deleted - listed >= 0.29

    async def test_an_empty_list_loses_nothing(
        self, http: httpx.AsyncClient, simulator: Simulator
    ) -> None:
        simulator.create(2)
        await http.patch("/_sim", json={"empty_list": True})
        assert (await http.get(LISTS[0])).json() == {"sandboxes": [], "next_cursor": None}
        assert (await http.get(LISTS[1])).json() == {"results": []}
        await http.patch("/_sim", json={"empty_list": False})
        assert len((await http.get(LISTS[0])).json()["sandboxes"]) == 2

    @pytest.mark.parametrize("pages", [1, 2])
    async def test_a_list_breaks_off_after_so_many_pages(
        self, http: httpx.AsyncClient, simulator: Simulator, pages: int
    ) -> None:
        simulator.create(10)
        await http.patch("/_sim", json={"break_after_page": pages})
        cursors = ["0", "3", "6", "9"]
        codes = [
            (await http.get(LISTS[0], params={"limit": "3", "cursor": cursor})).status_code
            for cursor in cursors
        ]
        assert codes == [200] * pages + [500] * (4 - pages)

    @pytest.mark.parametrize("scheme", ["Bearer", "Token"])
    async def test_a_token_guards_the_provider_but_not_its_controls(
        self, http: httpx.AsyncClient, simulator: Simulator, scheme: str
    ) -> None:
        simulator.token = "right"
        simulator.create(1)
        [identity] = simulator.sandboxes
        for headers in ({}, {"authorization": f"{scheme} wrong"}, {"authorization": scheme}):
            for path in LISTS:
                assert (await http.get(path, headers=headers)).status_code == 401
            for path in DELETES:
                refused = await http.delete(path.format(identity), headers=headers)
                assert refused.status_code == 401
        assert (await control(http))["sandboxes"] == 1
        right = {"authorization": f"{scheme} right"}
        assert (await http.get(LISTS[0], headers=right)).status_code == 200
        deleted = await http.delete(DELETES[1].format(identity), headers=right)
        assert deleted.status_code == 204

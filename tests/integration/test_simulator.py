"""The simulated provider: its controls, its faults, its memory, and `sandyard csp-sim` itself."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandyard.broker.provider.simulator import Faults, Simulator, create_simulator_app
from sandyard.entrypoints.server import free_port
from tests.integration.conftest import Connect, Serve, eventually
from tests.servers import csp_simulator, run_sandyard

LISTS = ("/api/sandbox", "/current_user/accounts")
DELETES = ("/api/sandbox/{}", "/sandbox/accounts/{}")
NO_FAULTS = {
    "latency": 0.0,
    "delete_latency": 0.0,
    "error_rate": 0.0,
    "outage": "none",
    "break_after_page": 0,
    "empty_list": False,
}


@pytest.fixture
async def http(simulator_url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=simulator_url, timeout=10) as client:
        yield client


async def control(http: httpx.AsyncClient) -> Any:
    response = await http.get("/_sim")
    assert response.status_code == 200
    return response.json()


class TestControls:
    async def test_shows_what_it_has_what_it_was_asked_and_what_goes_wrong(
        self, http: httpx.AsyncClient, simulator: Simulator
    ) -> None:
        simulator.create(3)
        shown = {"sandboxes": 3, "calls": {"list": 0, "delete": 0}, "faults": NO_FAULTS}
        assert await control(http) == shown
        for path in LISTS:
            await http.get(path)
        await http.delete("/api/sandbox/unknown")
        shown["calls"] = {"list": 2, "delete": 1}
        assert await control(http) == shown

    async def test_changes_the_named_faults_and_keeps_the_others(
        self, http: httpx.AsyncClient, simulator: Simulator
    ) -> None:
        first = await http.patch("/_sim", json={"latency": 0.25, "outage": "error"})
        assert first.status_code == 200
        assert first.json()["faults"] == NO_FAULTS | {"latency": 0.25, "outage": "error"}
        second = await http.patch("/_sim", json={"outage": "none", "error_rate": 1, "latency": 0})
        assert second.json()["faults"] == NO_FAULTS | {"error_rate": 1}
        assert await control(http) == second.json()
        assert simulator.faults == Faults(error_rate=1)

    async def test_a_whole_number_does_not_keep_fractions_out_later(
        self, http: httpx.AsyncClient
    ) -> None:
        for value in (1, 0.5, 0, 0.25):
            wishes = {"error_rate": value, "latency": value, "delete_latency": value}
            response = await http.patch("/_sim", json=wishes)
            assert response.status_code == 200
            assert response.json()["faults"] == NO_FAULTS | wishes

    async def test_no_change_at_all_is_a_change_too(self, http: httpx.AsyncClient) -> None:
        response = await http.patch("/_sim", json={})
        assert (response.status_code, response.json()["faults"]) == (200, NO_FAULTS)

    @pytest.mark.parametrize(
        ("body", "about"),
        [
            ('{"weather": "bad"}', "weather"),
            ('{"outage": "sometimes"}', "outage"),
            ('{"outage": true}', "outage"),
            ('{"outage": null}', "outage"),
            ('{"outage": ["error"]}', "outage"),
            ('{"error_rate": 1.01}', "error_rate"),
            ('{"error_rate": -0.01}', "error_rate"),
            ('{"error_rate": NaN}', "error_rate"),
            ('{"error_rate": "half"}', "error_rate"),
            ('{"latency": "long"}', "latency"),
            ('{"latency": true}', "latency"),
            ('{"latency": -1}', "latency"),
            ('{"latency": NaN}', "latency"),
            ('{"latency": Infinity}', "latency"),
            ('{"delete_latency": -0.5}', "delete_latency"),
            ('{"delete_latency": NaN}', "delete_latency"),
            ('{"break_after_page": 1.5}', "break_after_page"),
            ('{"break_after_page": -1}', "break_after_page"),
            ('{"break_after_page": true}', "break_after_page"),
            ('{"empty_list": 1}', "empty_list"),
            ('{"empty_list": "yes"}', "empty_list"),
            ("[]", "object"),
            ('"outage"', "object"),
            ("null", "object"),
            ("{", ""),
            ("", ""),
        ],
    )
    async def test_refuses_faults_that_make_no_sense_and_changes_nothing(
        self, http: httpx.AsyncClient, simulator: Simulator, body: str, about: str
    ) -> None:
        before = Faults(latency=0.01, error_rate=0.5)
        simulator.faults = before
        response = await http.patch("/_sim", content=body)
        assert response.status_code == 400
        assert about in response.json()["error"]
        assert simulator.faults == before

    async def test_one_senseless_fault_stops_the_sensible_ones_beside_it(
        self, http: httpx.AsyncClient, simulator: Simulator
    ) -> None:
        response = await http.patch("/_sim", json={"empty_list": True, "error_rate": 7})
        assert response.status_code == 400
        assert simulator.faults == Faults()

    async def test_makes_more_sandboxes_on_demand(
        self, http: httpx.AsyncClient, simulator: Simulator
    ) -> None:
        simulator.create(2)
        for count, total in ((3, 5), (0, 5), (1, 6)):
            response = await http.post("/_sim/sandboxes", json={"count": count})
            assert (response.status_code, response.json()["sandboxes"]) == (200, total)
        listed = (await http.get("/api/sandbox")).json()["sandboxes"]
        assert [entry["name"] for entry in listed] == [f"sandbox-000{n}" for n in range(1, 7)]
        assert len({entry["id"] for entry in listed}) == 6
        for entry in listed:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry["created_at"])

    async def test_a_deleted_sandbox_s_id_and_name_are_not_given_again(
        self, http: httpx.AsyncClient, simulator: Simulator
    ) -> None:
        simulator.create(1)
        [first] = simulator.sandboxes
        assert (await http.delete(f"/api/sandbox/{first}")).status_code == 204
        await http.post("/_sim/sandboxes", json={"count": 1})
        [entry] = (await http.get("/api/sandbox")).json()["sandboxes"]
        assert (entry["id"] != first, entry["name"]) == (True, "sandbox-0002")

    @pytest.mark.parametrize(
        "body",
        [
            '{"count": -1}',
            '{"count": 1000001}',
            '{"count": "many"}',
            '{"count": null}',
            '{"count": 1e400}',
            '{"count": NaN}',
            "{}",
            "[]",
            "7",
            "{",
            "",
        ],
    )
    async def test_refuses_a_number_that_makes_no_sense(
        self, http: httpx.AsyncClient, simulator: Simulator, body: str
    ) -> None:
        response = await http.post("/_sim/sandboxes", content=body)
        assert response.status_code == 400
        assert "count" in response.json()["error"]
        assert simulator.sandboxes == {}


class TestDialects:
    async def test_the_generic_list_comes_in_pages(
        self, http: httpx.AsyncClient, simulator: Simulator
    ) -> None:
        simulator.create(5)
        found: list[str] = []
        parameters = {"limit": "2"}
        sizes: list[int] = []
        while True:
            answer = (await http.get("/api/sandbox", params=parameters)).json()
            sizes.append(len(answer["sandboxes"]))
            found += [entry["id"] for entry in answer["sandboxes"]]
            if answer["next_cursor"] is None:
                break
            parameters["cursor"] = answer["next_cursor"]
        assert sizes == [2, 2, 1]
        assert found == list(simulator.sandboxes)

    @pytest.mark.parametrize("parameters", [{"limit": "ten"}, {"cursor": "next"}])
    async def test_a_page_that_makes_no_sense_is_refused(
        self, http: httpx.AsyncClient, parameters: dict[str, str]
    ) -> None:
        assert (await http.get("/api/sandbox", params=parameters)).status_code == 400

    async def test_the_infoblox_list_has_everything_at_once_in_its_own_form(
        self, http: httpx.AsyncClient, simulator: Simulator
    ) -> None:
        simulator.create(300)
        results = (await http.get("/current_user/accounts")).json()["results"]
        assert [entry["id"] for entry in results] == [
            f"identity/accounts/{identity}" for identity in simulator.sandboxes
        ]
        assert {(entry["account_type"], entry["state"]) for entry in results} == {
            ("sandbox", "active")
        }
        assert len({entry["csp_id"] for entry in results}) == 300

    @pytest.mark.parametrize("path", DELETES)
    async def test_a_sandbox_is_deleted_once(
        self, http: httpx.AsyncClient, simulator: Simulator, path: str
    ) -> None:
        simulator.create(2)
        [doomed, kept] = simulator.sandboxes
        assert (await http.delete(path.format(doomed))).status_code == 204
        assert (await http.delete(path.format(doomed))).status_code == 404
        assert list(simulator.sandboxes) == [kept]

    async def test_both_dialects_show_the_same_sandboxes(
        self, simulator: Simulator, simulator_url: str, connect: Connect
    ) -> None:
        simulator.create(3)
        generic = connect(simulator_url)
        infoblox = connect(simulator_url, dialect="infoblox")
        [first, second, third] = await infoblox.list_sandboxes()
        await infoblox.delete_sandbox(first.external_id)
        await generic.delete_sandbox(second.external_id.removeprefix("identity/accounts/"))
        [left] = await generic.list_sandboxes()
        assert f"identity/accounts/{left.external_id}" == third.external_id


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
                await http.request(method, path, timeout=0.2)
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


class TestMemory:
    async def test_a_state_file_survives_a_restart(
        self, serve: Serve, connect: Connect, tmp_path: Path
    ) -> None:
        state_file = tmp_path / "state.json"
        first = Simulator(state_file=state_file)
        first.load_or_create(5)
        provider = connect(await serve(create_simulator_app(first)))
        [doomed, *kept] = await provider.list_sandboxes()
        await provider.delete_sandbox(doomed.external_id)
        second = Simulator(state_file=state_file)
        second.load_or_create(99)
        again = connect(await serve(create_simulator_app(second)))
        assert list(await again.list_sandboxes()) == kept
        second.create(1)
        assert [entry["name"] for entry in second.sandboxes.values()][-1] == "sandbox-0006"
        third = Simulator(state_file=state_file)
        third.load_or_create(0)
        assert third.sandboxes == second.sandboxes

    async def test_without_a_state_file_every_start_is_a_fresh_one(self) -> None:
        first, second = Simulator(), Simulator()
        first.load_or_create(3)
        second.load_or_create(3)
        assert list(first.sandboxes) == list(second.sandboxes)
        first.delete(next(iter(first.sandboxes)))
        assert (len(first.sandboxes), len(second.sandboxes)) == (2, 3)


class TestCommand:
    @pytest.mark.parametrize("dialect", ["generic", "infoblox"])
    async def test_serves_its_dialect_and_obeys_its_controls(
        self, tmp_path: Path, connect: Connect, dialect: str
    ) -> None:
        with csp_simulator(tmp_path, "--count", "3", "--dialect", dialect) as url:
            provider = connect(url, dialect=dialect)
            [doomed, *kept] = await provider.list_sandboxes()
            await provider.delete_sandbox(doomed.external_id)
            await provider.delete_sandbox(doomed.external_id)
            assert list(await provider.list_sandboxes()) == kept
            async with httpx.AsyncClient(base_url=url, timeout=10) as http:
                await http.post("/_sim/sandboxes", json={"count": 7})
                assert len(await provider.list_sandboxes()) == 9
                await http.patch("/_sim", json={"outage": "error"})
                refused = await http.get(LISTS[0])
                assert refused.status_code == 503
                assert (await control(http))["calls"] == {"list": 4, "delete": 2}

    async def test_takes_its_faults_and_its_token_from_the_command_line(
        self, tmp_path: Path
    ) -> None:
        faults = NO_FAULTS | {
            "latency": 0.01,
            "delete_latency": 0.02,
            "error_rate": 0.5,
            "outage": "error",
            "break_after_page": 3,
            "empty_list": True,
        }
        arguments = (
            *("--count", "0", "--latency", "0.01", "--delete-latency", "0.02"),
            *("--error-rate", "0.5", "--outage", "error", "--break-after-page", "3"),
            *("--empty-list", "--token", "right"),
        )
        with csp_simulator(tmp_path, *arguments) as url:
            async with httpx.AsyncClient(base_url=url, timeout=10) as http:
                shown = await control(http)
                assert (shown["sandboxes"], shown["faults"]) == (0, faults)
                await http.patch("/_sim", json=NO_FAULTS)
                assert (await http.get(LISTS[0])).status_code == 401

    @pytest.mark.parametrize("dialect", ["generic", "infoblox"])
    async def test_its_state_survives_a_restart(
        self, tmp_path: Path, connect: Connect, dialect: str
    ) -> None:
        arguments = ("--count", "4", "--dialect", dialect, "--state", str(tmp_path / "state.json"))
        with csp_simulator(tmp_path, *arguments) as url:
            provider = connect(url, dialect=dialect)
            [doomed, *kept] = await provider.list_sandboxes()
            await provider.delete_sandbox(doomed.external_id)
        with csp_simulator(tmp_path, *arguments) as url:
            assert list(await connect(url, dialect=dialect).list_sandboxes()) == kept

    async def test_says_how_to_use_it(self, tmp_path: Path) -> None:
        port = free_port()
        process = run_sandyard(
            *("csp-sim", "--port", str(port), "--count", "2", "--dialect", "infoblox"),
            log=tmp_path / "log",
        )
        stdout = process.stdout
        assert stdout is not None
        with stdout:
            try:
                first, second = [
                    await asyncio.wait_for(asyncio.to_thread(stdout.readline), 20) for _ in range(2)
                ]
            finally:
                process.terminate()
            assert await asyncio.to_thread(process.wait, 10) == 0
        assert b"2 simulated sandboxes" in first
        assert f"CSP_BASE_URL=http://127.0.0.1:{port} CSP_DIALECT=infoblox" in second.decode()

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--count", "-1"),
            ("--count", "many"),
            ("--dialect", "klingon"),
            ("--outage", "sometimes"),
            ("--error-rate", "1.5"),
            ("--error-rate", "nan"),
            ("--latency", "-1"),
            ("--latency", "nan"),
            ("--break-after-page", "-1"),
            ("--port", "0"),
        ],
        ids=" ".join,
    )
    async def test_a_wrong_command_line_is_told_what_is_wrong_with_it(
        self, tmp_path: Path, arguments: tuple[str, str]
    ) -> None:
        code, said = await self._run_to_its_end(
            tmp_path, "csp-sim", "--port", str(free_port()), *arguments
        )
        assert code == 2
        assert arguments[0] in said
        assert "Traceback" not in said

    async def test_a_state_file_of_something_else_is_left_alone_and_named(
        self, tmp_path: Path
    ) -> None:
        state = tmp_path / "letters.txt"
        state.write_text("dear reader")
        code, said = await self._run_to_its_end(
            tmp_path, "csp-sim", "--port", str(free_port()), "--state", str(state)
        )
        assert code in (1, 2)
        assert str(state) in said
        assert "Traceback" not in said
        assert state.read_text() == "dear reader"

    async def test_a_port_that_is_taken_is_not_shared(
        self, tmp_path: Path, simulator_url: str
    ) -> None:
        port = simulator_url.rsplit(":", 1)[-1]
        code, said = await self._run_to_its_end(tmp_path, "csp-sim", "--port", port)
        assert code == 1
        assert port in said
        assert said.count("\n") == 1

    async def _run_to_its_end(self, folder: Path, *arguments: str) -> tuple[int | None, str]:
        """What the command's exit code is and what it said on stderr, if it ends by itself."""
        log = folder / "command.log"
        process = run_sandyard(*arguments, log=log)
        try:
            await eventually(lambda: process.poll() is not None, within_sec=10)
        except TimeoutError:
            pytest.fail(f"it went on running; it said {log.read_text()!r}")
        finally:
            process.kill()
            process.wait(10)
            assert process.stdout is not None
            process.stdout.close()
        return process.returncode, log.read_text()

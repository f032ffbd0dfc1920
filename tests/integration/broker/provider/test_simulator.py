"""The simulated provider: its controls, its dialects and its memory."""

import re
from pathlib import Path

import httpx
import pytest

from sandyard.tools.provider.simulator import Faults, Simulator, create_simulator_app
from tests.integration.broker.provider.simulators import DELETES, LISTS, NO_FAULTS, control
from tests.integration.conftest import Connect, Serve


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

    async def test_are_closed_to_callers_without_the_token(
        self, http: httpx.AsyncClient, simulator: Simulator
    ) -> None:
        calls = (("PATCH", "/_sim", {"outage": "error"}), ("POST", "/_sim/sandboxes", {"count": 1}))
        simulator.token = "of-callers"
        for accepts, right in ((None, "of-callers"), (b"of-operators".__eq__, "of-operators")):
            simulator.accepts_control = accepts
            for method, path, body in calls:
                for sent in (None, "Bearer wrong", "Bearer of-caller", ""):
                    headers = {} if sent is None else {"Authorization": sent}
                    refused = await http.request(method, path, json=body, headers=headers)
                    assert refused.status_code == 401
            assert (simulator.faults, simulator.sandboxes) == (Faults(), {})
            known = {"Authorization": f"Bearer {right}"}
            done = await http.patch("/_sim", json={"latency": 0.0}, headers=known)
            assert done.status_code == 200

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
            settings = {"error_rate": value, "latency": value, "delete_latency": value}
            response = await http.patch("/_sim", json=settings)
            assert response.status_code == 200
            assert response.json()["faults"] == NO_FAULTS | settings

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

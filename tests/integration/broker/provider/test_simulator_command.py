"""The simulated provider as a program."""

import asyncio
from pathlib import Path

import httpx
import pytest

from sandyard.kit.free_ports import free_port
from tests.integration.broker.provider.simulators import LISTS, NO_FAULTS, control
from tests.integration.conftest import Connect, eventually
from tests.support.servers.processes import csp_simulator, run_sandyard, wait_until_ready


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
            async with httpx.AsyncClient(base_url=url, timeout=60) as http:
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
            async with httpx.AsyncClient(base_url=url, timeout=60) as http:
                shown = await control(http)
                assert (shown["sandboxes"], shown["faults"]) == (0, faults)
                assert (await http.patch("/_sim", json=NO_FAULTS)).status_code == 401
                right = {"Authorization": "Bearer right"}
                await http.patch("/_sim", json=NO_FAULTS, headers=right)
                assert (await http.get(LISTS[0])).status_code == 401
                assert (await http.get(LISTS[0], headers=right)).status_code == 200

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
                    await asyncio.wait_for(asyncio.to_thread(stdout.readline), 60) for _ in range(2)
                ]
                wait_until_ready(f"http://127.0.0.1:{port}", process, "/_sim")
            finally:
                process.terminate()
            assert await asyncio.to_thread(process.wait, 60) == 0
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
            await eventually(lambda: process.poll() is not None, within_sec=60)
        except TimeoutError:
            pytest.fail(f"it went on running; it said {log.read_text()!r}")
        finally:
            process.kill()
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()
        return process.returncode, log.read_text()

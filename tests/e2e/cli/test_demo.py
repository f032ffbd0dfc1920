"""`sandyard demo`: one command, and the console has something to show."""

import signal
from pathlib import Path

import httpx
import pytest

from sandyard.kit.free_ports import free_port
from tests.support.servers.processes import run_sandyard
from tests.support.servers.users import until


@pytest.mark.parametrize(("ending", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_command_serves_a_site_with_live_data_and_leaves_no_server(
    tmp_path: Path, ending: signal.Signals, code: int
) -> None:
    port, data_dir = free_port(), tmp_path / "demo"
    process = run_sandyard(
        *("demo", "--port", str(port), "--data-dir", str(data_dir)), log=tmp_path / "log"
    )
    assert process.stdout is not None
    try:
        shown = [process.stdout.readline().decode() for _ in range(3)]
        assert shown[0] == f"The console: http://127.0.0.1:{port}/\n"
        admin = {"Authorization": f"Bearer {shown[2].strip()}"}
        telemetry = (data_dir / "secrets" / "telemetry_admin_token").read_text().strip()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            until(lambda: client.get("/v1/admin/stats", headers=admin).json()["allocated"] > 1)
            assert client.get("/v1/admin/reservations", headers=admin).json()["reservations"]
            operator = {"Authorization": f"Bearer {telemetry}"}
            listed = client.get("/telemetry/v1/devices", headers=operator).json()["devices"]
        assert "Cold store" in {each["friendly_name"] for each in listed}
    finally:
        process.send_signal(ending)
        assert process.wait(30) == code
        process.stdout.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/healthz")
    assert "Traceback" not in (tmp_path / "log").read_text()

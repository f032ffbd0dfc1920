"""The programs of a game day as real processes, which log to one folder, and an account in them;
among them a Prometheus that evaluates the rules with shortened durations, so that minutes of
production fit."""

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from sandyard.kit.free_ports import free_port
from sandyard.tools.gameday.model import GameDayError

START_SEC = 120
_STOP_SEC = 30
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR")
SHRINK = 60
_SHORTEST_SEC = {"for": 1, "window": 7}
"""A window covers three scrapes, so that one may be missed."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FOR = re.compile(r"(?P<before>^\s*for:\s*)(?P<count>\d+)(?P<unit>[smhd])[ ]*$", re.MULTILINE)
_WINDOW = re.compile(r"(?P<before>\[|\boffset )(?P<count>\d+)(?P<unit>[smhd])\b")
_NAME = "gameday"
_PASSWORD = "a-password-of-the-gameday"  # noqa: S105 - for this run's servers on loopback


def clean_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """These settings and none of the caller's, except for AWS credentials."""
    inherited = {k: v for k, v in os.environ.items() if k in _INHERITED or k.startswith("AWS_")}
    return {**inherited, **settings}


@dataclass(slots=True)
class Program:
    """One program, on a port that stays the same across restarts."""

    name: str
    arguments: Sequence[str]
    ready_path: str
    folder: Path
    port: int
    environment: Mapping[str, str] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Returns when it is ready; raises GameDayError with the end of its log if it fails."""
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.arguments, stdout=log, stderr=log, env=clean_environment(self.environment)
            )
        async with httpx.AsyncClient(timeout=5) as client:
            for _ in range(START_SEC * 10):
                if self.process.returncode is not None:
                    break
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(self.url + self.ready_path)).is_success:
                        return
                await asyncio.sleep(0.1)
        printed = (self.folder / f"{self.name}.log").read_text(errors="replace")
        raise GameDayError(f"{self.name} did not start: {printed[-500:].strip()}")

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def stop(self) -> None:
        if self.process is None or self.process.returncode is not None:
            return
        self.process.terminate()
        try:
            await asyncio.wait_for(self.process.wait(), _STOP_SEC)
        except TimeoutError:
            await self.kill()


def sandyard_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sandyard", *arguments]


async def run_once(
    arguments: Sequence[str], settings: Mapping[str, str], *, text: str = ""
) -> tuple[int, str]:
    """The exit code and the output; `text` is the input."""
    process = await asyncio.create_subprocess_exec(
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=clean_environment(settings),
    )
    printed, _ = await process.communicate(text.encode())
    return process.returncode or 0, printed.decode(errors="replace").strip()


def simulator(folder: Path, count: int) -> Program:
    port = free_port()
    arguments = sandyard_command("csp-sim", "--count", str(count), "--port", str(port))
    return Program("csp-sim", arguments, "/_sim", folder, port)


def server(folder: Path, number: int, data_dir: Path, settings: Mapping[str, str]) -> Program:
    port = free_port()
    arguments = sandyard_command("serve", "--port", str(port), "--data-dir", str(data_dir))
    return Program(f"server-{number}", arguments, "/readyz", folder, port, settings)


def skewed_server(
    folder: Path, number: int, data_dir: Path, settings: Mapping[str, str], clock: Path
) -> Program:
    """A program whose clock is off by the seconds in the file `clock`."""
    right = server(folder, number, data_dir, settings)
    own = right.arguments[right.arguments.index("serve") :]
    arguments = [sys.executable, "-m", "sandyard.tools.gameday.skewed", str(clock), *own]
    return replace(right, arguments=arguments)


def prometheus(program: str, folder: Path, rules: Path, targets: Sequence[str]) -> Program:
    """With shortened rules, so that a game day of seconds covers minutes of production."""
    (folder / "rules.yml").write_text(shortened(rules.read_text()))
    (folder / "prometheus.yml").write_text(json.dumps(_configuration(targets)))
    port = free_port()
    arguments = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    return Program("prometheus", arguments, "/-/ready", folder, port)


def _configuration(targets: Sequence[str]) -> dict[str, object]:
    """JSON is valid YAML. The scrape timeout is as long as the servers allow the engine for its
    gauges: a missed scrape restarts an alert's pending period."""
    return {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [{"job_name": "sandyard", "static_configs": [{"targets": [*targets]}]}],
    }


async def firing_alerts(client: httpx.AsyncClient, url: str) -> frozenset[str]:
    try:
        answer = (await client.get(f"{url}/api/v1/alerts")).raise_for_status().json()
    except httpx.HTTPError:
        return frozenset()
    alerts = answer["data"]["alerts"]
    return frozenset(each["labels"]["alertname"] for each in alerts if each["state"] == "firing")


def shortened(rules: str) -> str:
    """Each `for` and each window divided by sixty: a minute becomes a second. Expressions,
    thresholds and names are unchanged."""
    shorter_for = _FOR.sub(lambda found: _shorter(found, _SHORTEST_SEC["for"]), rules)
    return _WINDOW.sub(lambda found: _shorter(found, _SHORTEST_SEC["window"]), shorter_for)


def _shorter(found: re.Match[str], shortest_sec: int) -> str:
    seconds = int(found["count"]) * _UNITS[found["unit"]] // SHRINK
    return f"{found['before']}{max(seconds, shortest_sec)}s"


async def log_in(client: httpx.AsyncClient, url: str, data_dir: Path) -> Mapping[str, str]:
    """The headers of a new account; it is an admin, so that nobody has to confirm it."""
    address = ("--email", f"{_NAME}@example.com", "--username", _NAME)
    command = sandyard_command("users", "create-admin", "--password-stdin", *address)
    code, printed = await run_once(command, {"DATA_DIR": str(data_dir)}, text=_PASSWORD)
    if code:
        raise GameDayError(f"`sandyard users create-admin` failed: {printed[-500:]}")
    body = {"login": _NAME, "password": _PASSWORD}
    answer = await client.post(f"{url}/api/v1/auth/login", json=body)
    return {"Authorization": f"Bearer {answer.raise_for_status().json()['access_token']}"}


async def new_api_key(client: httpx.AsyncClient, url: str, headers: Mapping[str, str]) -> str:
    body = {"name": "gameday"}
    answer = await client.post(f"{url}/api/v1/api-keys", headers=headers, json=body)
    key: str = answer.raise_for_status().json()["api_key"]
    return key

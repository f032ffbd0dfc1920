"""The programs of a game day as real processes, which log to one folder."""

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from sandyard.kit.free_ports import free_port
from sandyard.tools.gameday.errors import GameDayError

START_SEC = 120
_STOP_SEC = 30
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR")


def clean_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """These settings and none of the caller's, except for AWS credentials."""
    kept = {k: v for k, v in os.environ.items() if k in _KEPT or k.startswith("AWS_")}
    return {**kept, **settings}


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
        raise GameDayError(f"{self.name} did not start: {self._log_end()}")

    async def kill(self) -> None:
        """Like `kill -9`."""
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

    def _log_end(self) -> str:
        return (self.folder / f"{self.name}.log").read_text(errors="replace")[-500:].strip()


def sandyard_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sandyard", *arguments]


async def run_once(arguments: Sequence[str], settings: Mapping[str, str]) -> tuple[int, str]:
    """The exit code and the output."""
    process = await asyncio.create_subprocess_exec(
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=clean_environment(settings),
    )
    printed, _ = await process.communicate()
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


def find_prometheus() -> str | None:
    return shutil.which("prometheus")

"""Closed-loop load over HTTP by `wrk`: 64 connections, each with one request under way."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

CONNECTIONS = 64
INSTALL_WRK = "wrk is not on the PATH; install it with: apt-get install wrk"

_SCRIPT = """
local before, after, sent = {before}, {after}, 0
request = function()
  sent = sent + 1
  return before .. sent .. after
end
done = function(summary)
  local e = summary.errors
  local failed = e.connect + e.read + e.write + e.timeout + e.status
  print(string.format('{{"requests":%d,"usec":%d,"failed":%d}}',
    summary.requests, summary.duration, failed))
end
"""


@dataclass(frozen=True, slots=True)
class Target:
    """A call to make over and over; each request carries a track id that was never sent before."""

    port: int
    pid: int
    method: str
    path: str
    token: str = "none"


@dataclass(frozen=True, slots=True)
class Slice:
    """What one stretch of load came to; the CPU time is the server's alone."""

    per_second: float
    cpu_usec: float


def has_wrk() -> bool:
    return shutil.which("wrk") is not None


def measure_slice(target: Target, seconds: int, *, label: str, folder: Path) -> Slice:
    """Load `target` for so long; `label` keeps this slice's track ids apart from the others'.

    Raises RuntimeError if any request failed, for a rate of refusals says nothing.
    """
    before = (
        f"{target.method} {target.path} HTTP/1.1\r\nHost: 127.0.0.1:{target.port}\r\n"
        f"Authorization: Bearer {target.token}\r\nContent-Length: 0\r\nX-Track-ID: {label}-"
    )
    script = folder / f"{label}.lua"
    script.write_text(_SCRIPT.format(before=json.dumps(before), after=json.dumps("\r\n\r\n")))
    url = f"http://127.0.0.1:{target.port}{target.path}"
    cpu_before = cpu_seconds(target.pid)
    answer = subprocess.run(
        ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(script), url],
        check=True,
        capture_output=True,
        text=True,
        timeout=seconds + 30,
    )
    summary = json.loads(answer.stdout.splitlines()[-1])
    if summary["failed"] or not summary["requests"]:
        raise RuntimeError(f"{target.path} did not answer every request: {summary}")
    cpu = cpu_seconds(target.pid) - cpu_before
    return Slice(
        per_second=summary["requests"] / summary["usec"] * 1e6,
        cpu_usec=cpu / summary["requests"] * 1e6,
    )


def cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)

"""`sandyard serve` with a registered fleet, and `wrk` sending it batches of readings."""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from benchmarks.broker_server import port_of
from benchmarks.load import Slice
from benchmarks.readings import (
    BATCH,
    BOOT_ID,
    DEVICES,
    FIRMWARE_VERSION,
    Batches,
    body_template,
    hardware_id,
)
from tests.support.servers.processes import ServerProcess, sandyard_serve

CONNECTIONS = 16
_PATH = "/telemetry/v1/data"
_DRAIN_SEC = 30
_BETWEEN_LOOKS_SEC = 0.2

# The body is cut up once; for each request only its device and its block of time are put in.
_SCRIPT = """
local head, body, first_block, sent = {head}, {body}, {first_block}, {first}
local pieces, devices, blocks = {{}}, {{}}, {{}}
for text, mark in (body .. "@E"):gmatch("([^@]*)@(%u)") do
  pieces[#pieces + 1] = text
  if mark ~= "E" then
    pieces[#pieces + 1] = ""
    local places = mark == "D" and devices or blocks
    places[#places + 1] = #pieces
  end
end
pieces[1] = head .. pieces[1]
request = function()
  local device = string.format("02:00:00:00:00:%02X", sent % {devices})
  local block = tostring(first_block + math.floor(sent / {devices}))
  for i = 1, #devices do pieces[devices[i]] = device end
  for i = 1, #blocks do pieces[blocks[i]] = block end
  sent = sent + 1
  return table.concat(pieces)
end
done = function(summary)
  local e = summary.errors
  local failed = e.connect + e.read + e.write + e.timeout + e.status
  print(string.format('{{"requests":%d,"usec":%d,"failed":%d}}',
    summary.requests, summary.duration, failed))
end
"""


@dataclass(frozen=True, slots=True)
class Sent:
    """A stretch of load: batches per second, and how many were answered."""

    slice: Slice
    batches: int


class FleetServer:
    """A server that knows the devices of `Batches` and a key of theirs."""

    def __init__(self, server: ServerProcess, api_key: str, folder: Path) -> None:
        self._server = server
        self._api_key = api_key
        self._folder = folder
        self._sent = 0

    def send(self, batches: Batches, *, first: int, seconds: int) -> Sent:
        """Send batches from number `first` on for so long, then let what is under way end.

        Raises RuntimeError unless each reading that was sent was new, and was stored.
        """
        script = self._folder / f"batches-{first}.lua"
        script.write_text(self._script(batches, first))
        cpu_before = self._cpu_seconds()
        options = ("-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "20s")
        answer = subprocess.run(
            ["wrk", *options, "-s", str(script), f"{self._server.url}{_PATH}"],
            check=True,
            capture_output=True,
            text=True,
            timeout=seconds + 60,
        )
        summary = json.loads(answer.stdout.splitlines()[-1])
        done = summary["requests"]
        if summary["failed"] or not done:
            raise RuntimeError(f"{_PATH} did not answer every request: {summary}")
        cpu = self._cpu_seconds() - cpu_before
        self._sent += done
        self._require_all_new()
        return Sent(Slice(done / summary["usec"] * 1e6, cpu / done * 1e6), done)

    def _script(self, batches: Batches, first: int) -> str:
        body = body_template()
        length = len(body)
        for mark, text in (("@D", hardware_id(0)), ("@B", str(batches.first_block))):
            length += body.count(mark) * (len(text) - len(mark))
        head = (
            f"POST {_PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port_of(self._server)}\r\n"
            f"X-API-Key: {self._api_key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {length}\r\n\r\n"
        )
        return _SCRIPT.format(
            head=json.dumps(head),
            body=json.dumps(body),
            first_block=batches.first_block,
            first=first,
            devices=DEVICES,
        )

    def _require_all_new(self) -> None:
        """Wait until nothing is under way any more, which would be at the next slice's cost."""
        deadline = time.monotonic() + _DRAIN_SEC
        before = -1.0
        while (stored := self._readings("acknowledged")) != before:
            if time.monotonic() > deadline:
                raise RuntimeError("the server did not come to rest")
            before = stored
            time.sleep(_BETWEEN_LOOKS_SEC)
        for outcome in ("duplicate", "rejected"):
            if number := self._readings(outcome):
                raise RuntimeError(f"{number:.0f} readings: {outcome}; the rate means nothing")
        if stored < self._sent * BATCH:
            raise RuntimeError(f"{stored:.0f} readings stored of {self._sent * BATCH:,} answered")

    def _readings(self, outcome: str) -> float:
        text = httpx.get(f"{self._server.url}/metrics", timeout=10).raise_for_status().text
        line = re.search(rf'^readings_total{{outcome="{outcome}"}} (\S+)$', text, re.MULTILINE)
        if line is None:
            raise RuntimeError(f"/metrics does not show readings that were {outcome}")
        return float(line.group(1))

    def _cpu_seconds(self) -> float:
        times = psutil.Process(self._server.process.pid).cpu_times()
        return float(times.user + times.system)


@contextmanager
def fleet_server(
    folder: Path, *, environment: Mapping[str, str] | None = None
) -> Iterator[FleetServer]:
    alone = {"PARTS": "telemetry", **(environment or {})}
    with sandyard_serve(folder / "data", environment=alone) as server:
        with httpx.Client(base_url=f"{server.url}/telemetry/v1", timeout=10) as client:
            made = client.post("/api-keys", headers=server.operator).raise_for_status().json()
            for device in range(DEVICES):
                registration = {
                    "hardware_id": hardware_id(device),
                    "boot_id": BOOT_ID,
                    "firmware_version": FIRMWARE_VERSION,
                    "capabilities": {"sensors": ["bme280", "ds18b20", "soil_moisture"]},
                }
                headers = {"X-API-Key": made["api_key"]}
                client.post("/register", json=registration, headers=headers).raise_for_status()
        yield FleetServer(server, made["api_key"], folder)

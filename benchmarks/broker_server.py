"""`sandyard serve` on a pool that was filled beforehand, ready to be measured."""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from benchmarks.pools import make_sqlite_pool
from tests.support.servers.processes import ServerProcess, csp_simulator, sandyard_serve

ROWS = 200_000
_FIRST_SYNC_SEC = 180


@contextmanager
def filled_server(
    folder: Path, environment: Mapping[str, str] | None = None, *, rows: int = ROWS
) -> Iterator[ServerProcess]:
    """A server with so many free sandboxes, once its first sync has read them.

    Its provider lists none of them; sync finds that suspicious and leaves them alone.
    """
    data_dir = folder / "data"
    data_dir.mkdir(parents=True)
    make_sqlite_pool(data_dir / "broker.db", rows)
    with (
        csp_simulator(folder) as provider,
        sandyard_serve(
            data_dir, environment={"CSP_BASE_URL": provider, **(environment or {})}
        ) as server,
    ):
        deadline = time.monotonic() + _FIRST_SYNC_SEC
        while not _find_metric(server, "last_sync_timestamp_seconds"):
            if time.monotonic() > deadline:
                raise RuntimeError("the first sync did not come to its end")
            time.sleep(0.2)
        yield server


def port_of(server: ServerProcess) -> int:
    port = urlsplit(server.url).port
    if port is None:
        raise ValueError(f"{server.url} names no port")
    return port


def require_only_new_leases(server: ServerProcess) -> None:
    """Raise RuntimeError if a claim was answered with anything but a sandbox of its own."""
    for outcome in ("repeated", "exhausted", "rate_limited", "unavailable"):
        number = _metric(server, f'allocate_total{{outcome="{outcome}"}}')
        if number:
            raise RuntimeError(f"{number:.0f} claims were {outcome}; the rate means nothing")


def _metric(server: ServerProcess, name: str) -> float:
    value = _find_metric(server, name)
    if value is None:
        raise RuntimeError(f"/metrics does not show {name}")
    return value


def _find_metric(server: ServerProcess, name: str) -> float | None:
    """None if it is left out, as gauges are while the engine is slow to answer."""
    text = httpx.get(f"{server.url}/metrics", timeout=10).raise_for_status().text
    line = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return None if line is None else float(line.group(1))

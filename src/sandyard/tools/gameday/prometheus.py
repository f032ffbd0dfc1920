"""A real Prometheus that scrapes the servers and evaluates the project's rules."""

import json
from collections.abc import Sequence
from pathlib import Path

import httpx

from sandyard.kit.free_ports import free_port
from sandyard.tools.gameday.processes import Program
from sandyard.tools.gameday.rules import shortened


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
    """Names of the alerts firing now; empty while Prometheus does not respond in time."""
    try:
        answer = (await client.get(f"{url}/api/v1/alerts")).raise_for_status().json()
    except httpx.HTTPError:
        return frozenset()
    alerts = answer["data"]["alerts"]
    return frozenset(each["labels"]["alertname"] for each in alerts if each["state"] == "firing")

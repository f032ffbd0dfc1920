"""Builds the Grafana dashboards beside it: `python deploy/grafana/build.py`.

Grafana reads the JSON files; this defines the look of a panel once.
"""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT = 12, 8
RATE = "[$__rate_interval]"

Panel = tuple[str, str, dict[str, str]]
"""A title, a unit, and queries by legend."""

POOL: list[Panel] = [
    (
        "Pool by state",
        "short",
        {
            state: f"max(pool_{state})"
            for state in (
                *("available", "reserved", "allocated", "pending_deletion"),
                *("stale", "deletion_failed"),
            )
        },
    ),
    (
        "Claims by outcome",
        "reqps",
        {"{{outcome}}": f"sum by (outcome) (rate(allocate_total{RATE}))"},
    ),
    (
        "Time to lease",
        "s",
        {
            f"p{share}": f"histogram_quantile(0.{share}, sum by (le) "
            f"(rate(allocation_latency_seconds_bucket{RATE})))"
            for share in ("50", "95", "99")
        },
    ),
    (
        "Hours to exhaustion",
        "h",
        {"hours": "max(pool_available) / (max(-deriv(pool_available[30m])) * 3600 > 0)"},
    ),
    (
        "Deletions",
        "short",
        {"{{outcome}}": f"sum by (outcome) (increase(cleanup_total{RATE}))"},
    ),
    ("Since the last sync", "s", {"age": "time() - max(last_sync_timestamp_seconds)"}),
    ("Waiting tickets", "short", {"waiting": "max(queue_waiting)"}),
    ("Provider's circuit open", "short", {"open": "max(provider_circuit_open)"}),
]
SERVICE: list[Panel] = [
    (
        "Requests by route",
        "reqps",
        {"{{route}}": f"sum by (route) (rate(request_latency_seconds_count{RATE}))"},
    ),
    (
        "Errors",
        "reqps",
        {
            "{{status}}": "sum by (status) (rate(request_latency_seconds_count"
            f'{{status=~"5.."}}{RATE}))'
        },
    ),
    (
        "Time to answer, p99",
        "s",
        {
            "{{route}}": "histogram_quantile(0.99, sum by (le, route) "
            f"(rate(request_latency_seconds_bucket{RATE})))"
        },
    ),
    ("Free disk", "bytes", {"free": "min(sandyard_disk_free_bytes)"}),
    (
        "Since each job's last success",
        "s",
        {
            "{{part}} {{job}}": "time() - max by (part, job) "
            "(sandyard_job_last_success_timestamp_seconds)"
        },
    ),
]
READINGS: list[Panel] = [
    (
        "Readings by outcome",
        "cps",
        {"{{outcome}}": f"sum by (outcome) (rate(readings_total{RATE}))"},
    ),
    (
        "Rejections by code",
        "cps",
        {"{{code}}": f"sum by (code) (rate(readings_rejected_total{RATE}))"},
    ),
    (
        "Time to store a request's readings",
        "s",
        {
            "p99": "histogram_quantile(0.99, sum by (le) "
            f"(rate(readings_intake_seconds_bucket{RATE})))"
        },
    ),
    (
        "Registrations",
        "cps",
        {"registrations": f"sum(rate(device_registrations_total{RATE}))"},
    ),
]
SANDBOXES: list[Panel] = [
    ("Sandboxes", "short", {"{{status}}": "sum by (status) (sandyard_sandboxes_active)"}),
    ("Previews", "short", {"active": "max(sandyard_previews_active)"}),
    ("On silent nodes", "short", {"silent": "max(sandyard_sandboxes_silent)"}),
    ("Pods by state", "short", {"{{state}}": "max by (state) (sandyard_pods)"}),
    (
        "Longest in a state, Pods",
        "s",
        {"{{state}}": 'max by (state) (sandyard_pods_oldest_seconds{state!="running"})'},
    ),
    (
        "Calls of the Platform",
        "reqps",
        {
            "{{route}}": "sum by (route) (rate(request_latency_seconds_count"
            f'{{route=~"/api/v1/.*"}}{RATE}))'
        },
    ),
]
DASHBOARDS = {
    "overview": ("Sandyard: overview", [*POOL[:3], *SERVICE, *READINGS[:1], *SANDBOXES[:1]]),
    "broker": ("Sandyard: Broker", POOL),
    "telemetry": ("Sandyard: Telemetry", READINGS),
    "platform": ("Sandyard: Platform", SANDBOXES),
}


def panel(number: int, about: Panel) -> dict[str, Any]:
    title, unit, queries = about
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "gridPos": {
            "h": HEIGHT,
            "w": WIDTH,
            "x": number % 2 * WIDTH,
            "y": number // 2 * HEIGHT,
        },
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": query,
                "legendFormat": legend,
            }
            for index, (legend, query) in enumerate(queries.items())
        ],
    }


def dashboard(name: str) -> dict[str, Any]:
    title, panels = DASHBOARDS[name]
    source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"sandyard-{name}",
        "title": title,
        "tags": ["sandyard"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": [panel(number, about) for number, about in enumerate(panels)],
    }


def text(name: str) -> str:
    return json.dumps(dashboard(name), indent=2) + "\n"


if __name__ == "__main__":
    for each in DASHBOARDS:
        (FOLDER / f"{each}.json").write_text(text(each))

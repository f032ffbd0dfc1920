"""Alerts and dashboards: right by promtool, and about metrics that a server really has."""

import json
import re
import subprocess
from pathlib import Path

import httpx
import pytest
import yaml

from tests.support.servers.processes import sandyard_serve

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
OPERATIONS = DEPLOY.parent / "docs" / "operations.md"
_NAME = re.compile(r"\b([a-z]+(?:_[a-z]+)+)(?=[\[{)\s]|$)")
"""A metric in an expression; a function has a parenthesis behind it."""
_SUFFIX = re.compile(r"_(bucket|count|sum)$")
BY_SETTINGS = {"event_delivery_total", "sandyard_pods", "sandyard_pods_oldest_seconds"}
"""Only where events are delivered somewhere, or sandboxes are Pods."""


def promtool(*arguments: str) -> None:
    run = subprocess.run(
        ["promtool", *arguments], cwd=RULES.parent, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_rules_are_right() -> None:
    promtool("check", "rules", "rules.yml")


def test_every_alert_fires_and_does_not_fire() -> None:
    promtool("test", "rules", "rules_test.yml")
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    tried = re.findall(
        r"alertname: (\w+)\n +exp_alerts:( \[\])?", (RULES.parent / "rules_test.yml").read_text()
    )
    assert {name for name, nothing in tried if nothing} == set(alerts)
    assert {name for name, nothing in tried if not nothing} == set(alerts)


def test_every_alert_has_a_page_to_turn_to() -> None:
    headings = re.findall(r"^#+ (.+)$", OPERATIONS.read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in headings}
    links = re.findall(r"runbook: .*docs/operations\.md#([a-z-]+)\"", RULES.read_text())
    assert len(links) == RULES.read_text().count("- alert:")
    assert set(links) <= anchors


@pytest.mark.parametrize("name", ["overview", "broker", "telemetry", "platform"])
def test_a_dashboard_is_what_its_builder_makes(name: str) -> None:
    script = DEPLOY / "grafana" / "build.py"
    built: dict[str, object] = {"__name__": "build", "__file__": str(script)}
    exec(compile(script.read_text(), script, "exec"), built)  # noqa: S102 - our own file
    text = (DEPLOY / "grafana" / f"{name}.json").read_text()
    assert callable(built["text"])
    assert text == built["text"](name)
    assert json.loads(text)["panels"]


def test_every_metric_of_rules_and_dashboards_is_exposed(tmp_path: Path) -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    expressions = [rule["expr"] for group in groups for rule in group["rules"]]
    asked = {name for each in expressions for name in _NAME.findall(each)}
    for path in (DEPLOY / "grafana").glob("*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                asked |= set(_NAME.findall(target["expr"]))
    with sandyard_serve(tmp_path / "data") as server:
        httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=30)
        shown = httpx.get(f"{server.url}/metrics", timeout=60).text
    known = set(re.findall(r"^# TYPE (\S+)", shown, re.MULTILINE))
    assert {_SUFFIX.sub("", name) for name in asked} - BY_SETTINGS - known == set()
    assert len(asked) > 20

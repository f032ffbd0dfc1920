"""The game days that there are, and the rules that they shorten."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from sandyard.entrypoints.cli.tools.gameday import command
from sandyard.tools.gameday.model import SCENARIOS, Fault, Load, Scenario, find_scenario
from sandyard.tools.gameday.processes import shortened
from sandyard.tools.gameday.runner import SWITCHES

ROOT = Path(__file__).parents[4]
RULES = (ROOT / "deploy/prometheus/rules.yml").read_text()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_a_scenario_awaits_alerts_that_the_rules_have(scenario: Scenario) -> None:
    known = re.findall(r"- alert: (\w+)", RULES)
    assert scenario.alerts
    assert set(scenario.alerts) <= set(known)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_a_scenario_is_listed_by_help_and_described_in_the_docs(scenario: Scenario) -> None:
    assert find_scenario(scenario.name) is scenario
    assert scenario.name in CliRunner().invoke(command, ["--help"]).output
    assert f"`{scenario.name}`" in (ROOT / "docs/gamedays.md").read_text()


def test_every_fault_can_be_injected_and_has_a_scenario() -> None:
    assert set(SWITCHES) == set(Fault) == {each.fault for each in SCENARIOS}


def test_durations_are_a_sixtieth_and_the_rest_stays() -> None:
    rule = "expr: rate(errors[10m]) > 0.1 and rate(errors[1h] offset 30m) > 3600\n    for: 10m\n"
    expected = (
        "expr: rate(errors[10s]) > 0.1 and rate(errors[60s] offset 30s) > 3600\n    for: 10s\n"
    )
    assert shortened(rule) == expected
    assert shortened("    for: 1s\n") == "    for: 1s\n"
    assert len(shortened(RULES).splitlines()) == len(RULES.splitlines())


def test_the_pool_has_a_sandbox_for_every_track_unless_the_scenario_says_how_many() -> None:
    plenty, few = find_scenario("task-killed"), find_scenario("pool-exhaustion")
    assert plenty is not None
    assert few is not None
    assert Load(10, tracks_per_second=5).pool_for(plenty, 20) > 100
    assert Load(10).pool_for(few, 20) == few.pool


def test_an_engine_that_a_scenario_does_not_apply_to_is_reported() -> None:
    outcome = CliRunner().invoke(command, ["throttling"])
    assert outcome.exit_code == 1
    assert "does not apply to sqlite" in outcome.output


def test_a_missing_engine_is_reported() -> None:
    arguments = ["task-killed", "--engine", "postgresql"]
    outcome = CliRunner().invoke(command, arguments, env={"DATABASE_URL": None})
    assert outcome.exit_code == 1
    assert "Set DATABASE_URL" in outcome.output

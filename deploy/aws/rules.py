"""The Prometheus alert rules, so that CloudWatch's alarms match them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

RULES = Path(__file__).parents[1] / "prometheus" / "rules.yml"
_UNITS = {"m": 1, "h": 60}
_BEGINNING = "{{ $externalLabels.runbooks }}"


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    expression: str
    minutes: int
    """How long the condition must hold before the alert fires; 0: immediately."""
    severity: str
    summary: str
    runbook: str

    def description(self, runbooks_url: str) -> str:
        """For an alarm, which has no values for the summary's placeholders. Links to the runbook
        begin with the URL."""
        return f"{self.severity}: {_plain(self.summary)} See {runbooks_url}{self.runbook}."


@cache
def load_rules() -> Mapping[str, Rule]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    return {
        rule["alert"]: Rule(
            name=rule["alert"],
            expression=rule["expr"],
            minutes=_minutes(rule.get("for", "0m")),
            severity=rule["labels"]["severity"],
            summary=rule["annotations"]["summary"],
            runbook=rule["annotations"]["runbook"].removeprefix(_BEGINNING),
        )
        for rule in alerts
    }


def _minutes(text: str) -> int:
    return int(text[:-1]) * _UNITS[text[-1]]


def _plain(summary: str) -> str:
    text = re.sub(r"\{\{ \$value \}\}", "Some", summary)
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"(\1)", text)

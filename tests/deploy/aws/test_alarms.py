"""CloudWatch's alarms: each alert of Prometheus that applies, with the same thresholds."""

import json
import re
from typing import Any

import pytest

from deploy.aws import alarms
from deploy.aws.rules import load_rules
from sandyard.bootstrap.registry import get_spec
from tests.deploy.aws.templates import NAMES, Synthesised, deployment

PLATFORM_ALONE = {"SandyardSandboxesLost", "SandyardDiskFilling"}
"""Tasks of the Broker and of Telemetry keep nothing on a disk, and run no sandboxes."""
PROMETHEUS_ALONE = {
    *("SandyardClockSkewed", "SandyardHoldForgotten"),
    *("SandyardPodsPending", "SandyardPodsUnreachable", "SandyardFilesNotStored"),
}
"""One compares a clock with that of the scrape; on Fargate clocks are AWS's. Another goes by a
gauge alone, and CloudWatch has what log lines tell. The others are about Pods: these stacks make no
cluster."""
OWN = {"SandyardJobNotStarted", "SandyardRotationFailed"}
"""What there is on AWS alone."""


def alarms_of(synthesised: Synthesised, name: str) -> dict[str, dict[str, Any]]:
    """All of them by what follows the deployment's name."""
    kinds = ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
    found = [each for kind in kinds for each in synthesised.of_type(name, kind).values()]
    named = [each for each in found if each.get("AlarmName", "").startswith("sandyard-")]
    prefix = f"{deployment(name).name}-"
    return {each["AlarmName"].removeprefix(prefix): each for each in named}


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_that_applies_is_an_alarm(synthesised: Synthesised, name: str) -> None:
    alerts = {each.partition("-")[0] for each in alarms_of(synthesised, name)}
    wanted = set(load_rules()) - PROMETHEUS_ALONE
    if not deployment(name).platform:
        wanted -= PLATFORM_ALONE
    assert alerts - OWN == wanted


@pytest.mark.parametrize("name", NAMES)
def test_an_alarm_waits_as_long_and_says_where_to_turn(synthesised: Synthesised, name: str) -> None:
    for full_name, alarm in alarms_of(synthesised, name).items():
        rule = load_rules().get(full_name.partition("-")[0])
        if rule is None:
            continue
        assert alarm["AlarmDescription"].startswith(f"{rule.severity}: ")
        link = f"{deployment(name).runbooks_url}{rule.runbook}"
        assert f"See {link}." in alarm["AlarmDescription"]
        assert "{{" not in alarm["AlarmDescription"]
        if "EvaluationPeriods" in alarm and _period(alarm) <= 60 * rule.minutes:
            assert alarm["EvaluationPeriods"] * _period(alarm) == 60 * rule.minutes


def _period(alarm: dict[str, Any]) -> int:
    if "Period" in alarm:
        return int(alarm["Period"])
    stats = [each["MetricStat"]["Period"] for each in alarm["Metrics"] if "MetricStat" in each]
    return int(stats[0])


@pytest.mark.parametrize(
    ("alert", "pattern", "value"),
    [
        ("SandyardPoolLow", r"< ([\d.]+) \* max without", alarms.POOL_LOW_SHARE),
        ("SandyardSyncStale", r"\[2m\]\)\) > (\d+)", alarms.SYNC_STALE_SEC),
        ("SandyardPoolExhaustedSoon", r", (\d+)\)\) < 0", alarms.EXHAUSTED_WITHIN_SEC),
        ("SandyardPoolExhaustedSoon", r"\[(\d+)m\]", alarms.EXHAUSTED_SEEN_MINUTES),
        ("SandyardClaimsSlow", r"> ([\d.]+)$", alarms.CLAIM_P99_SEC),
        ("SandyardErrorBudgetFast", r"rate5m > ([\d.]+) \*", alarms.FAST_BURN),
        ("SandyardErrorBudgetFast", r"\* ([\d.]+)$", alarms.ERROR_BUDGET),
        ("SandyardErrorBudgetFast", r"rate(\d+)m", alarms.FAST_MINUTES[0]),
        ("SandyardErrorBudgetFast", r"rate(\d+)h", alarms.FAST_MINUTES[1] / 60),
        ("SandyardErrorBudgetSlow", r"rate30m > ([\d.]+) \*", alarms.SLOW_BURN),
        ("SandyardErrorBudgetSlow", r"\* ([\d.]+)$", alarms.ERROR_BUDGET),
        ("SandyardErrorBudgetSlow", r"rate(\d+)m", alarms.SLOW_MINUTES[0]),
        ("SandyardErrorBudgetSlow", r"rate(\d+)h", alarms.SLOW_MINUTES[1] / 60),
        ("SandyardServerErrors", r"\[(\d+)m\]", alarms.SERVER_ERROR_MINUTES),
        ("SandyardJobNotRunning", r"> (\d+) \* max", alarms.JOB_INTERVALS),
        ("SandyardJobNotRunning", r"\+ (\d+) or", alarms.JOB_GRACE_SEC),
        ("SandyardDevicesSilent", r"\[(\d+)m\]\)\) == 0", alarms.SILENT_MINUTES),
        ("SandyardEventsUndelivered", r"\[(\d+)m\]", alarms.DELIVERY_MINUTES),
        ("SandyardDiskFilling", r"< ([\d.]+) \*", alarms.DISK_SHARE),
    ],
)
def test_a_threshold_is_that_of_the_alert(alert: str, pattern: str, value: float) -> None:
    found = re.search(pattern, load_rules()[alert].expression)
    assert found is not None, load_rules()[alert].expression
    assert float(found[1]) == value


def test_the_thresholds_are_in_the_alarms(synthesised: Synthesised) -> None:
    found = alarms_of(synthesised, "platform")
    thresholds = {
        "SandyardPoolLow": 0.1,
        "SandyardPoolEmpty": 0,
        "SandyardDeletionFailed": 0,
        "SandyardSyncStale": 3600,
        "SandyardProviderCircuitOpen": 1,
        "SandyardClaimsSlow": 300,  # CloudWatch has it in milliseconds
        "SandyardErrorBudgetFast-5m": 0.0144,
        "SandyardErrorBudgetFast-60m": 0.0144,
        "SandyardErrorBudgetSlow-30m": 0.006,
        "SandyardErrorBudgetSlow-360m": 0.006,
        "SandyardJobNotRunning-broker-sync": 300,
        "SandyardDiskFilling": 5 * 1024**3,
    }
    for name, threshold in thresholds.items():
        assert found[name]["Threshold"] == pytest.approx(threshold), name
    assert found["SandyardClaimsSlow"]["ExtendedStatistic"] == "p99"


@pytest.mark.parametrize("name", NAMES)
def test_every_job_that_runs_is_watched(synthesised: Synthesised, name: str) -> None:
    own = deployment(name)
    parts = (*own.parts, *(("platform", "previews") if own.platform else ()))
    jobs = {(part, job.name) for part in parts for job in get_spec(part).jobs if not job.absent}
    assert {f"SandyardJobNotRunning-{part}-{job}" for part, job in jobs} == {
        each for each in alarms_of(synthesised, name) if "JobNotRunning" in each
    }


@pytest.mark.parametrize("name", NAMES)
def test_somebody_is_told_of_every_alert(synthesised: Synthesised, name: str) -> None:
    """Alarms that are only half of another's reason tell nobody by themselves."""
    found = alarms_of(synthesised, name)
    halves = {each for each in found if re.search(r"-(\d+m|now|before)$", each)}
    assert {each for each, alarm in found.items() if "AlarmActions" not in alarm} == halves
    emails = synthesised.of_type(name, "AWS::SNS::Subscription").values()
    address = deployment(name).alarm_email
    assert [each["Endpoint"] for each in emails] == ([] if address is None else [address])


@pytest.mark.parametrize("name", NAMES)
def test_metrics_that_alarms_ask_for_are_sent(synthesised: Synthesised, name: str) -> None:
    """By the agent beside the server, or by a filter over the log."""
    text = json.dumps(synthesised.of_type(name, "AWS::ECS::TaskDefinition"))
    sent = set(re.findall(r"\^([a-z_]+)\$", text))
    sent |= {
        change["MetricName"]
        for each in synthesised.of_type(name, "AWS::Logs::MetricFilter").values()
        for change in each["MetricTransformations"]
    }
    asked = {
        metric
        for alarm in alarms_of(synthesised, name).values()
        for metric in re.findall(
            r'"MetricName": "([^"]+)", "Namespace": "Sandyard', json.dumps(alarm)
        )
    }
    assert len(asked) >= 8
    assert asked <= sent


@pytest.mark.parametrize("name", NAMES)
def test_the_dashboard_shows_the_thresholds(synthesised: Synthesised, name: str) -> None:
    body = json.dumps(synthesised.one(name, "AWS::CloudWatch::Dashboard")["DashboardBody"])
    for title in ("Sandboxes by state", "Claims in milliseconds", "Share of 5xx"):
        assert title in body
    shown = re.findall(r'"value":([\d.]+)', body.replace("\\", ""))
    assert sorted(map(float, shown)) == pytest.approx([0.0144, 300, 3600])

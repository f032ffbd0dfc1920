"""Alarms: the Prometheus alerts in CloudWatch, with the same thresholds."""

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.metrics import (
    CLAIM_LATENCY,
    MINUTE,
    READINGS,
    SERVER_ERRORS,
    Metrics,
    error_ratio,
    unhealthy_tasks,
)
from deploy.aws.rules import load_rules
from sandyard.bootstrap.registry import get_spec

POOL_LOW_SHARE = 0.1
SYNC_STALE_SEC = 3600
EXHAUSTED_WITHIN_SEC, EXHAUSTED_SEEN_MINUTES = 3600, 30
CLAIM_P99_SEC = 0.3
ERROR_BUDGET = 0.001
FAST_BURN, SLOW_BURN = 14.4, 6
FAST_MINUTES, SLOW_MINUTES = (5, 60), (30, 360)
SERVER_ERROR_MINUTES = 10
JOB_INTERVALS, JOB_GRACE_SEC = 3, 300
SILENT_MINUTES = 30
DELIVERY_MINUTES = 15
DISK_SHARE = 0.1
_ABOVE = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
_AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
_BELOW = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD
_AT_MOST = cloudwatch.ComparisonOperator.LESS_THAN_OR_EQUAL_TO_THRESHOLD
_QUIET = cloudwatch.TreatMissingData.NOT_BREACHING
_ALARMING = cloudwatch.TreatMissingData.BREACHING


class Alarms(Construct):
    """Each is named after its alert, and notifies a topic."""

    def __init__(
        self, scope: Construct, deployment: Deployment, key: kms.IKey, metrics: Metrics
    ) -> None:
        super().__init__(scope, "Alarms")
        self._deployment = deployment
        self._metrics = metrics
        self.topic = sns.Topic(
            self,
            "Topic",
            topic_name=f"{deployment.name}-alarms",
            master_key=key,
            enforce_ssl=True,
        )
        if deployment.alarm_email is not None:
            self.topic.add_subscription(subscriptions.EmailSubscription(deployment.alarm_email))
        self.rollback: list[cloudwatch.IAlarm] = []
        """The alarms that roll back a deployment."""

    def watch_pool(self) -> None:
        gauge = self._metrics.gauge
        free, total = gauge("pool_available"), gauge("pool_total")
        share = _math("IF(total > 0, free / total, 1)", free=free, total=total)
        self._alarm("SandyardPoolLow", share, POOL_LOW_SHARE, _BELOW)
        none = _math("IF(total > 0, free, 1)", free=free, total=total)
        self._alarm("SandyardPoolEmpty", none, 0, _AT_MOST)
        self._alarm("SandyardPoolExhaustedSoon", self._predicted(), 0, _BELOW)
        self._alarm("SandyardDeletionFailed", gauge("pool_deletion_failed"), 0, _ABOVE)

    def watch_provider(self) -> None:
        synced = self._metrics.gauge("last_sync_timestamp_seconds")
        age = _math("IF(synced > 0, EPOCH(synced) - synced, 0)", synced=synced)
        self._alarm("SandyardSyncStale", age, SYNC_STALE_SEC, _ABOVE)
        circuit = self._metrics.gauge("provider_circuit_open")
        self._alarm("SandyardProviderCircuitOpen", circuit, 1, _AT_LEAST)

    def watch_requests(self, balancer: elb.IApplicationLoadBalancer) -> None:
        fast, slow = FAST_BURN * ERROR_BUDGET, SLOW_BURN * ERROR_BUDGET
        [short, _] = self._burn("SandyardErrorBudgetFast", balancer, FAST_MINUTES, fast)
        self._burn("SandyardErrorBudgetSlow", balancer, SLOW_MINUTES, slow)
        period = Duration.minutes(SERVER_ERROR_MINUTES)
        errors = self._metrics.logged(SERVER_ERRORS, "Sum", period=period)
        self._alarm("SandyardServerErrors", errors, 0, _ABOVE)
        latency = self._metrics.logged(CLAIM_LATENCY, "p99")
        claims = self._alarm("SandyardClaimsSlow", latency, CLAIM_P99_SEC * 1000, _ABOVE)
        self.rollback += [short, claims]

    def watch_targets(
        self,
        balancer: elb.ApplicationLoadBalancer,
        groups: Sequence[elb.ApplicationTargetGroup],
    ) -> None:
        """A task that does not respond, in any group."""
        unhealthy = {
            f"group{number}": unhealthy_tasks(balancer, group)
            for number, group in enumerate(groups)
        }
        total = _math(" + ".join(f"FILL({name}, 0)" for name in unhealthy), **unhealthy)
        self.rollback.append(self._alarm("SandyardDown", total, 1, _AT_LEAST))

    def watch_jobs(self, parts: Sequence[str], service: str | None = None) -> None:
        """One alarm for each job; the servers report its interval."""
        for part in parts:
            for job in get_spec(part).jobs:
                if not job.absent:
                    self._job(part, job.name, service)

    def watch_deliveries(self) -> None:
        period = Duration.minutes(DELIVERY_MINUTES)
        for sink in self._deployment.sinks:
            failed, delivered = (
                self._metrics.counter(
                    "event_delivery_total", period=period, sink=sink, outcome=each
                )
                for each in ("failed", "delivered")
            )
            more = _math(
                "FILL(failed, 0) - FILL(delivered, 0)", period, failed=failed, delivered=delivered
            )
            self._alarm("SandyardEventsUndelivered", more, 0, _ABOVE, suffix=f"-{sink}")

    def watch_devices(self) -> None:
        """No readings for half an hour, although there were some within the day."""
        name = "SandyardDevicesSilent"
        silent = self._metrics.logged(READINGS, "Sum", period=Duration.minutes(SILENT_MINUTES))
        day = self._metrics.logged(READINGS, "Sum", period=Duration.days(1))
        now = self._alarm(name, silent, 0, _AT_MOST, suffix="-now", missing=_ALARMING, tells=False)
        before = self._alarm(name, day, 0, _ABOVE, suffix="-before", tells=False)
        self._all_of(name, [now, before])

    def watch_sandboxes(self, service: str) -> None:
        lost = self._metrics.gauge("sandyard_sandboxes_silent", service=service)
        self._alarm("SandyardSandboxesLost", lost, 0, _ABOVE)

    def watch_disk(self, free_bytes: cloudwatch.Metric, size_bytes: int) -> None:
        """The disk of the database, the only one in a deployment."""
        self._alarm("SandyardDiskFilling", free_bytes, DISK_SHARE * size_bytes, _BELOW)

    def watch_own(self, name: str, metric: cloudwatch.IMetric, description: str) -> None:
        """Alarms specific to AWS: a single occurrence is too many."""
        alarm = self._made(name, metric, 0, _ABOVE, 1, description, _QUIET)
        alarm.add_alarm_action(actions.SnsAction(self.topic))

    def _predicted(self) -> cloudwatch.MathExpression:
        """The number of free sandboxes in an hour, extrapolated from the last half."""
        seen = Duration.minutes(EXHAUSTED_SEEN_MINUTES)
        steps = EXHAUSTED_WITHIN_SEC // (EXHAUSTED_SEEN_MINUTES * 60)
        free = self._metrics.gauge("pool_available", period=seen)
        return _math(f"IF(free > 0, free + {steps} * DIFF(free), 1)", seen, free=free)

    def _burn(
        self,
        name: str,
        balancer: elb.IApplicationLoadBalancer,
        windows: tuple[int, int],
        threshold: float,
    ) -> list[cloudwatch.Alarm]:
        """Too many errors in both a short and a long window."""
        alarms = [
            self._alarm(
                name,
                error_ratio(balancer, Duration.minutes(minutes)),
                threshold,
                _ABOVE,
                suffix=f"-{minutes}m",
                tells=False,
            )
            for minutes in windows
        ]
        self._all_of(name, alarms)
        return alarms

    def _job(self, part: str, job: str, service: str | None) -> None:
        done, interval = (
            self._metrics.gauge(name, service=service, part=part, exported_job=job)
            for name in (
                "sandyard_job_last_success_timestamp_seconds",
                "sandyard_job_interval_seconds",
            )
        )
        late = _math(
            f"EPOCH(done) - done - {JOB_INTERVALS} * interval", done=done, interval=interval
        )
        self._alarm("SandyardJobNotRunning", late, JOB_GRACE_SEC, _ABOVE, suffix=f"-{part}-{job}")

    def _alarm(
        self,
        alert: str,
        metric: cloudwatch.IMetric,
        threshold: float,
        comparison: cloudwatch.ComparisonOperator,
        *,
        suffix: str = "",
        missing: cloudwatch.TreatMissingData = _QUIET,
        tells: bool = True,
    ) -> cloudwatch.Alarm:
        rule = load_rules()[alert]
        period = metric.period.to_minutes() if hasattr(metric, "period") else 1
        periods = max(1, rule.minutes // int(period))
        alarm = self._made(
            alert + suffix,
            metric,
            threshold,
            comparison,
            periods,
            rule.description(self._deployment.runbooks_url),
            missing,
        )
        if tells:
            alarm.add_alarm_action(actions.SnsAction(self.topic))
            alarm.add_ok_action(actions.SnsAction(self.topic))
        return alarm

    def _made(
        self,
        name: str,
        metric: cloudwatch.IMetric,
        threshold: float,
        comparison: cloudwatch.ComparisonOperator,
        periods: int,
        description: str,
        missing: cloudwatch.TreatMissingData,
    ) -> cloudwatch.Alarm:
        return cloudwatch.Alarm(
            self,
            name,
            alarm_name=f"{self._deployment.name}-{name}",
            alarm_description=description,
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            treat_missing_data=missing,
        )

    def _all_of(self, alert: str, alarms: Sequence[cloudwatch.Alarm]) -> None:
        rule = cloudwatch.AlarmRule.all_of(
            *(cloudwatch.AlarmRule.from_alarm(each, cloudwatch.AlarmState.ALARM) for each in alarms)
        )
        both = cloudwatch.CompositeAlarm(
            self,
            alert,
            composite_alarm_name=f"{self._deployment.name}-{alert}",
            alarm_description=load_rules()[alert].description(self._deployment.runbooks_url),
            alarm_rule=rule,
        )
        both.add_alarm_action(actions.SnsAction(self.topic))
        both.add_ok_action(actions.SnsAction(self.topic))


def _math(
    expression: str, period: Duration = MINUTE, /, **metrics: cloudwatch.IMetric
) -> cloudwatch.MathExpression:
    return cloudwatch.MathExpression(
        expression=expression, using_metrics=metrics, period=period, label=expression
    )

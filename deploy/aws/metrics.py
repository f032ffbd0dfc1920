"""The metrics in CloudWatch: from `/metrics` through the agent, from the logs, and AWS's own."""

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_logs as logs
from constructs import Construct

from deploy.aws.config import Deployment

POOL = ("available", "allocated", "pending_deletion", "stale", "deletion_failed", "total")
BROKER_SELECTORS = {
    "": [
        *(f"pool_{state}" for state in POOL),
        "last_sync_timestamp_seconds",
        "provider_circuit_open",
    ],
    "part,exported_job": [
        "sandyard_job_last_success_timestamp_seconds",
        "sandyard_job_interval_seconds",
    ],
    "sink,outcome": ["event_delivery_total"],
}
"""The service's metrics that the agent sends, by their dimensions."""
PLATFORM_SELECTORS = {
    "": ["sandyard_sandboxes_silent"],
    "part,exported_job": BROKER_SELECTORS["part,exported_job"],
}
MINUTE = Duration.minutes(1)


class Metrics:
    """Metrics of one deployment, by their Prometheus names."""

    def __init__(self, deployment: Deployment) -> None:
        self.namespace = f"Sandyard/{deployment.environment}"
        self._service = deployment.service_name

    def gauge(
        self, name: str, *, period: Duration = MINUTE, service: str | None = None, **labels: str
    ) -> cloudwatch.Metric:
        """All replicas report the same value, which is the store's."""
        return self._metric(name, "Maximum", period, service, labels)

    def counter(self, name: str, *, period: Duration, **labels: str) -> cloudwatch.Metric:
        """Its increase, over all replicas."""
        return self._metric(name, "Sum", period, None, labels)

    def logged(self, name: str, statistic: str, *, period: Duration = MINUTE) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=self.namespace, metric_name=name, statistic=statistic, period=period
        )

    def _metric(
        self,
        name: str,
        statistic: str,
        period: Duration,
        service: str | None,
        labels: dict[str, str],
    ) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=self.namespace,
            metric_name=name,
            dimensions_map={"service": service or self._service, **labels},
            statistic=statistic,
            period=period,
        )


CLAIM_LATENCY, SERVER_ERRORS, READINGS = "ClaimLatency", "ServerErrors", "ReadingsAcknowledged"


def filter_requests(scope: Construct, metrics: Metrics, log: logs.ILogGroup) -> None:
    """Claims and faults from the request log lines. A claim that waits for a sandbox is not slow,
    so it is excluded."""
    _filter(
        scope,
        CLAIM_LATENCY,
        metrics,
        log,
        '{ $.action = "allocate" && $.latency_ms = * && $.wait_sec NOT EXISTS }',
        "$.latency_ms",
        cloudwatch.Unit.MILLISECONDS,
    )
    _filter(scope, SERVER_ERRORS, metrics, log, "{ $.status = 500 }", "1")


def filter_readings(scope: Construct, metrics: Metrics, log: logs.ILogGroup) -> None:
    _filter(scope, READINGS, metrics, log, '{ $.action = "ingest" }', "$.acknowledged")


def _filter(
    scope: Construct,
    name: str,
    metrics: Metrics,
    log: logs.ILogGroup,
    pattern: str,
    value: str,
    unit: cloudwatch.Unit | None = None,
) -> None:
    logs.MetricFilter(
        scope,
        name,
        log_group=log,
        filter_pattern=logs.FilterPattern.literal(pattern),
        metric_namespace=metrics.namespace,
        metric_name=name,
        metric_value=value,
        unit=unit,
    )


def error_ratio(
    balancer: elb.IApplicationLoadBalancer, period: Duration
) -> cloudwatch.MathExpression:
    """The share of requests with a 5xx response, from the tasks or from the load balancer."""
    metrics = balancer.metrics
    codes = elb.HttpCodeTarget.TARGET_5XX_COUNT, elb.HttpCodeElb.ELB_5XX_COUNT
    return cloudwatch.MathExpression(
        expression="IF(requests > 0, (FILL(answered, 0) + FILL(refused, 0)) / requests, 0)",
        using_metrics={
            "requests": metrics.request_count(period=period),
            "answered": metrics.http_code_target(codes[0], period=period),
            "refused": metrics.http_code_elb(codes[1], period=period),
        },
        label="share of 5xx",
        period=period,
    )


def unhealthy_tasks(
    balancer: elb.ApplicationLoadBalancer, group: elb.ApplicationTargetGroup
) -> cloudwatch.Metric:
    """Includes a group that gets traffic only after a switch."""
    return cloudwatch.Metric(
        namespace="AWS/ApplicationELB",
        metric_name="UnHealthyHostCount",
        dimensions_map={
            "LoadBalancer": balancer.load_balancer_full_name,
            "TargetGroup": group.target_group_full_name,
        },
        statistic="Maximum",
        period=MINUTE,
    )

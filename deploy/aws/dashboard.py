"""One dashboard: the pool, the calls, the jobs, the tasks and the tables, with their thresholds."""

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as elb
from constructs import Construct

from deploy.aws.alarms import CLAIM_P99_SEC, ERROR_BUDGET, FAST_BURN, SYNC_STALE_SEC
from deploy.aws.config import Deployment
from deploy.aws.metrics import CLAIM_LATENCY, POOL, READINGS, Metrics, error_ratio

_FIVE_MINUTES = Duration.minutes(5)


class Dashboard(Construct):
    def __init__(
        self,
        scope: Construct,
        deployment: Deployment,
        *,
        metrics: Metrics,
        balancer: elb.IApplicationLoadBalancer,
        service: ecs.FargateService,
        tables: Sequence[dynamodb.CfnTable],
    ) -> None:
        super().__init__(scope, "Dashboard")
        self.dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=deployment.name,
            widgets=[
                [_pool(metrics), _sync(metrics)],
                [_claims(metrics), _errors(balancer)],
                [_requests(balancer), _devices(metrics)],
                [_tasks(service), _throttles(tables)],
            ],
        )


def _graph(
    title: str, metrics: Sequence[cloudwatch.IMetric], threshold: float | None = None
) -> cloudwatch.GraphWidget:
    lines = [] if threshold is None else [cloudwatch.HorizontalAnnotation(value=threshold)]
    return cloudwatch.GraphWidget(
        title=title, left=list(metrics), left_annotations=lines, width=12, height=6
    )


def _pool(metrics: Metrics) -> cloudwatch.GraphWidget:
    return _graph("Sandboxes by state", [metrics.gauge(f"pool_{state}") for state in POOL])


def _sync(metrics: Metrics) -> cloudwatch.GraphWidget:
    synced = metrics.gauge("last_sync_timestamp_seconds")
    age = cloudwatch.MathExpression(
        expression="EPOCH(synced) - synced",
        using_metrics={"synced": synced},
        period=Duration.minutes(1),
        label="since the last sync",
    )
    return _graph("Seconds since the last sync", [age], SYNC_STALE_SEC)


def _claims(metrics: Metrics) -> cloudwatch.GraphWidget:
    shown = [metrics.logged(CLAIM_LATENCY, each) for each in ("p50", "p99")]
    return _graph("Claims in milliseconds", shown, CLAIM_P99_SEC * 1000)


def _errors(balancer: elb.IApplicationLoadBalancer) -> cloudwatch.GraphWidget:
    ratio = error_ratio(balancer, _FIVE_MINUTES)
    return _graph("Share of 5xx", [ratio], FAST_BURN * ERROR_BUDGET)


def _requests(balancer: elb.IApplicationLoadBalancer) -> cloudwatch.GraphWidget:
    return _graph("Requests", [balancer.metrics.request_count(period=Duration.minutes(1))])


def _devices(metrics: Metrics) -> cloudwatch.GraphWidget:
    return _graph("New readings", [metrics.logged(READINGS, "Sum", period=_FIVE_MINUTES)])


def _tasks(service: ecs.FargateService) -> cloudwatch.GraphWidget:
    used = [service.metric_cpu_utilization(), service.metric_memory_utilization()]
    return _graph("Processor and memory of the tasks in percent", used)


def _throttles(tables: Sequence[dynamodb.CfnTable]) -> cloudwatch.GraphWidget:
    names = ("ReadThrottleEvents", "WriteThrottleEvents")
    shown = [
        cloudwatch.Metric(
            namespace="AWS/DynamoDB",
            metric_name=name,
            dimensions_map={"TableName": table.ref},
            statistic="Sum",
            period=_FIVE_MINUTES,
            label=f"{table.table_name} {name}",
        )
        for table in tables
        for name in names
    ]
    return _graph("Calls that DynamoDB throttled", shown)

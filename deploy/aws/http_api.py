"""The stage of an HTTP API: throttled, with an access log."""

from aws_cdk import aws_apigatewayv2 as api
from aws_cdk import aws_kms as kms
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.logs import log_group

_BURST = 2000
_ACCESS = {
    "requestId": "$context.requestId",
    "ip": "$context.identity.sourceIp",
    "routeKey": "$context.routeKey",
    "status": "$context.status",
    "latency_ms": "$context.responseLatency",
}


def add_stage(
    scope: Construct, deployment: Deployment, key: kms.IKey, made: api.HttpApi, log: str
) -> None:
    """The only stage of the API; `log` is the last part of its log group's name."""
    group = log_group(scope, "AccessLog", deployment, key, f"/sandyard/{deployment.name}/{log}")
    stage = api.CfnStage(
        scope,
        "Stage",
        api_id=made.api_id,
        stage_name="$default",
        auto_deploy=True,
        access_log_settings=api.CfnStage.AccessLogSettingsProperty(
            destination_arn=group.log_group_arn,
            format="{" + ",".join(f'"{k}":"{v}"' for k, v in _ACCESS.items()) + "}",
        ),
        default_route_settings=api.CfnStage.RouteSettingsProperty(
            detailed_metrics_enabled=True,
            throttling_rate_limit=deployment.requests_per_5_minutes / 300,
            throttling_burst_limit=_BURST,
        ),
    )
    stage.node.add_dependency(made)

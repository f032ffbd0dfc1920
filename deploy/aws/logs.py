"""Log groups: encrypted, with the deployment's retention."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from deploy.aws.config import Deployment


def log_group(
    scope: Construct, name: str, deployment: Deployment, key: kms.IKey, path: str
) -> logs.LogGroup:
    return logs.LogGroup(
        scope,
        name,
        log_group_name=path,
        encryption_key=key,
        retention=_retention(deployment.log_retention_days),
        removal_policy=RemovalPolicy.RETAIN,
    )


def _retention(days: int) -> logs.RetentionDays:
    return next(each for each in logs.RetentionDays if each.value == _NAMES[days])


_NAMES = {
    1: "ONE_DAY",
    3: "THREE_DAYS",
    5: "FIVE_DAYS",
    7: "ONE_WEEK",
    14: "TWO_WEEKS",
    30: "ONE_MONTH",
    60: "TWO_MONTHS",
    90: "THREE_MONTHS",
    120: "FOUR_MONTHS",
    150: "FIVE_MONTHS",
    180: "SIX_MONTHS",
    365: "ONE_YEAR",
    400: "THIRTEEN_MONTHS",
    545: "EIGHTEEN_MONTHS",
    731: "TWO_YEARS",
}

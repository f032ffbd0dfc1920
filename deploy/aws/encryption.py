"""The key for encryption at rest."""

from aws_cdk import Aws, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from deploy.aws.config import Deployment

_USE = ("kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey", "kms:DescribeKey")


def grant_use(key: kms.IKey, user: iam.IGrantable) -> None:
    """Allow reading and writing data encrypted with it."""
    key.grant(user, *_USE)


class Encryption(Construct):
    """One customer managed key, rotated every year; its use is granted where it is needed."""

    def __init__(self, scope: Construct, deployment: Deployment) -> None:
        super().__init__(scope, "Encryption")
        self.key = kms.Key(
            self,
            "Key",
            alias=f"alias/{deployment.name}",
            description=f"Data, logs and secrets of {deployment.name}",
            enable_key_rotation=True,
            removal_policy=RemovalPolicy.RETAIN,
        )
        self._allow_logs(deployment)
        self._allow_alarms()

    def _allow_logs(self, deployment: Deployment) -> None:
        """CloudWatch Logs, only for the log groups of this account."""
        groups = f"arn:{Aws.PARTITION}:logs:{deployment.region}:{deployment.account}:*"
        self.key.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal(f"logs.{deployment.region}.amazonaws.com")],
                actions=["kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey*", "kms:DescribeKey"],
                resources=["*"],
                conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
            )
        )

    def _allow_alarms(self) -> None:
        """Alarms publish to an encrypted topic."""
        self.key.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["kms:Decrypt", "kms:GenerateDataKey*"],
                resources=["*"],
            )
        )

"""Resources of the pipeline: the registry, and roles for GitHub's jobs."""

from aws_cdk import Aws, Duration, RemovalPolicy
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.findings import acknowledge

REPOSITORY = "sandyard"
_HOST = "token.actions.githubusercontent.com"
_KEPT_IMAGES = 50


class Registry(Construct):
    """One for the account, before the first image: its repository, and the role that may publish
    there."""

    def __init__(self, scope: Construct, deployment: Deployment) -> None:
        super().__init__(scope, "Registry")
        self.repository = ecr.Repository(
            self,
            "Repository",
            repository_name=REPOSITORY,
            image_scan_on_push=True,
            image_tag_mutability=ecr.TagMutability.IMMUTABLE,
            encryption=ecr.RepositoryEncryption.KMS,
            lifecycle_rules=_expiry(),
            removal_policy=RemovalPolicy.RETAIN,
        )
        if deployment.github_repository is not None:
            provider = iam.CfnOIDCProvider(
                self, "GitHub", url=f"https://{_HOST}", client_id_list=["sts.amazonaws.com"]
            )
            role = _github_role(
                self,
                f"{REPOSITORY}-publish",
                provider.ref,
                f"repo:{deployment.github_repository}:ref:refs/tags/v*",
            )
            self.repository.grant_push(role)
            acknowledge(role, "IAM5[Resource::*]", "A token for the registry names no resource.")


class DeployRole(Construct):
    """For jobs of one environment of the repository: they may deploy only this service, and test it
    as a track, whose token is rotated."""

    def __init__(
        self, scope: Construct, deployment: Deployment, track_token: secretsmanager.Secret
    ) -> None:
        super().__init__(scope, "DeployRole")
        self._deployment = deployment
        provider = f"arn:{Aws.PARTITION}:iam::{deployment.account}:oidc-provider/{_HOST}"
        subject = f"repo:{deployment.github_repository}:environment:{deployment.environment}"
        self.role = _github_role(self, f"{deployment.name}-deploy", provider, subject)
        self._allow_ecs()
        self._allow_codedeploy()
        self._allow_task_roles()
        track_token.grant_read(self.role)

    @property
    def _place(self) -> str:
        return f"{self._deployment.region}:{self._deployment.account}"

    def _allow_ecs(self) -> None:
        own = self._deployment
        service = f"arn:aws:ecs:{self._place}:service/{own.cluster_name}/{own.service_name}"
        _allow(self.role, ["ecs:DescribeServices", "ecs:UpdateService"], [service])
        _allow(self.role, ["ecs:DescribeTaskDefinition", "ecs:RegisterTaskDefinition"], ["*"])
        acknowledge(self.role, "IAM5[Resource::*]", "Calls for task definitions take no resource.")

    def _allow_codedeploy(self) -> None:
        name = f"{self._deployment.cluster_name}-{self._deployment.service_name}"
        prefix = f"arn:aws:codedeploy:{self._place}"
        calls = (
            *("GetApplication", "GetApplicationRevision", "RegisterApplicationRevision"),
            *("GetDeploymentGroup", "GetDeploymentConfig", "CreateDeployment", "GetDeployment"),
        )
        _allow(
            self.role,
            [f"codedeploy:{call}" for call in calls],
            [
                f"{prefix}:application:AppECS-{name}",
                f"{prefix}:deploymentgroup:AppECS-{name}/DgpECS-{name}",
                f"{prefix}:deploymentconfig:CodeDeployDefault.ECSCanary10Percent5Minutes",
            ],
        )

    def _allow_task_roles(self) -> None:
        """A new task definition has the roles of the old one, whose names share a prefix."""
        roles = f"arn:aws:iam::{self._deployment.account}:role/{self._deployment.name}-task-*"
        self.role.add_to_policy(
            iam.PolicyStatement(
                actions=["iam:PassRole"],
                resources=[roles],
                conditions={"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}},
            )
        )
        acknowledge(self.role, f"IAM5[Resource::{roles}]", "Roles of this deployment's tasks.")


def _expiry() -> list[ecr.LifecycleRule]:
    untagged = ecr.LifecycleRule(
        description="Images that no tag has",
        tag_status=ecr.TagStatus.UNTAGGED,
        max_image_age=Duration.days(7),
        rule_priority=1,
    )
    newest = ecr.LifecycleRule(
        description="The newest images", max_image_count=_KEPT_IMAGES, rule_priority=2
    )
    return [untagged, newest]


def _github_role(scope: Construct, name: str, provider_arn: str, subject: str) -> iam.Role:
    return iam.Role(
        scope,
        "Role",
        role_name=name,
        max_session_duration=Duration.hours(1),
        assumed_by=iam.WebIdentityPrincipal(
            provider_arn,
            conditions={
                "StringEquals": {f"{_HOST}:aud": "sts.amazonaws.com"},
                "StringLike": {f"{_HOST}:sub": subject},
            },
        ),
    )


def _allow(role: iam.Role, actions: list[str], resources: list[str]) -> None:
    role.add_to_policy(iam.PolicyStatement(actions=actions, resources=resources))

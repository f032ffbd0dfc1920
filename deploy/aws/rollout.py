"""Blue/green: CodeDeploy starts the new tasks beside the old ones and switches the traffic."""

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as elb
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.findings import acknowledge
from deploy.aws.load_balancer import LoadBalancer

_KEPT = Duration.minutes(30)
"""How long the old tasks keep running after the switch, for an immediate rollback."""


class BlueGreen(Construct):
    """Rolled back automatically if it fails, is stopped, or one of the alarms fires meanwhile.
    Application and group have the names that `aws ecs deploy` expects."""

    def __init__(
        self,
        scope: Construct,
        deployment: Deployment,
        *,
        service: ecs.IBaseService,
        balancer: LoadBalancer,
        green: elb.ApplicationTargetGroup,
        alarms: Sequence[cloudwatch.IAlarm],
    ) -> None:
        super().__init__(scope, "BlueGreen")
        name = f"{deployment.cluster_name}-{deployment.service_name}"
        application = codedeploy.EcsApplication(
            self, "Application", application_name=f"AppECS-{name}"
        )
        self.group = codedeploy.EcsDeploymentGroup(
            self,
            "Group",
            application=application,
            deployment_group_name=f"DgpECS-{name}",
            service=service,
            alarms=list(alarms),
            deployment_config=codedeploy.EcsDeploymentConfig.CANARY_10_PERCENT_5_MINUTES,
            auto_rollback=codedeploy.AutoRollbackConfig(
                failed_deployment=True, stopped_deployment=True, deployment_in_alarm=True
            ),
            blue_green_deployment_config=codedeploy.EcsBlueGreenDeploymentConfig(
                blue_target_group=balancer.blue,
                green_target_group=green,
                listener=balancer.https,
                termination_wait_time=_KEPT,
            ),
        )
        acknowledge(
            self.group.role,
            "IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/AWSCodeDeployRoleForECS]",
            "AWS keeps it in step with what CodeDeploy does; only CodeDeploy may take the role.",
        )

"""The service: Broker, and Telemetry unless it is a function, as tasks behind the load balancer."""

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as elb
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.tasks import Task

BLUE_GREEN = ecs.DeploymentController(type=ecs.DeploymentControllerType.CODE_DEPLOY)
ROLLING = ecs.DeploymentController(type=ecs.DeploymentControllerType.ECS)


class Service(Construct):
    """At least two tasks across all zones, scaled with the load."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        deployment: Deployment,
        *,
        cluster: ecs.ICluster,
        service_name: str,
        task: Task,
        group: ec2.ISecurityGroup,
        is_blue_green: bool = False,
    ) -> None:
        super().__init__(scope, name)
        self._deployment = deployment
        self.service = ecs.FargateService(
            self,
            "Service",
            service_name=service_name,
            cluster=cluster,
            task_definition=task.definition,
            deployment_controller=BLUE_GREEN if is_blue_green else ROLLING,
            desired_count=deployment.least_tasks,
            min_healthy_percent=100,
            max_healthy_percent=200,
            health_check_grace_period=Duration.seconds(60),
            security_groups=[group],
            vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS),
            assign_public_ip=False,
            propagate_tags=ecs.PropagatedTagSource.SERVICE,
            enable_ecs_managed_tags=True,
            circuit_breaker=None if is_blue_green else _CIRCUIT_BREAKER,
        )

    def scale(self, targets: elb.ApplicationTargetGroup | None) -> None:
        """By CPU, and by requests if one target group gets them all."""
        count = self.service.auto_scale_task_count(
            min_capacity=self._deployment.least_tasks, max_capacity=self._deployment.most_tasks
        )
        count.scale_on_cpu_utilization(
            "Cpu",
            target_utilization_percent=self._deployment.cpu_target_percent,
            scale_in_cooldown=Duration.minutes(5),
            scale_out_cooldown=Duration.minutes(1),
        )
        if targets is not None:
            count.scale_on_request_count(
                "Requests",
                requests_per_target=self._deployment.requests_per_task_and_minute,
                target_group=targets,
                scale_in_cooldown=Duration.minutes(5),
                scale_out_cooldown=Duration.minutes(1),
            )

    def roll_back_on(self, alarms: Sequence[cloudwatch.IAlarm]) -> None:
        """A rolling deployment is rolled back if one of these alarms fires during it."""
        self.service.enable_deployment_alarms(
            [alarm.alarm_name for alarm in alarms], behavior=ecs.AlarmBehavior.ROLLBACK_ON_ALARM
        )


_CIRCUIT_BREAKER = ecs.DeploymentCircuitBreaker(enable=True, rollback=True)

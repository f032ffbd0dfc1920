"""Jobs as separate tasks started by EventBridge Scheduler, each run to completion."""

import json

from aws_cdk import Duration
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.encryption import grant_use
from deploy.aws.findings import acknowledge
from deploy.aws.network import Network
from deploy.aws.tasks import CONTAINER, Task
from sandyard.settings import BrokerSettings, ServerSettings

_INTERVALS = {
    "sync": "sync_interval_sec",
    "cleanup": "cleanup_interval_sec",
    "expiry": "auto_expiry_interval_sec",
}
_TAKE_OVER = 3
"""After this many intervals without a run the servers run a job themselves."""


def broker_intervals() -> dict[str, int]:
    """The Broker's jobs that run as tasks, with their intervals in seconds."""
    return {job: _default(BrokerSettings, field) for job, field in _INTERVALS.items()}


def telemetry_intervals() -> dict[str, int]:
    """Telemetry's job, as a function has no schedule for it."""
    return {"telemetry-events": _default(ServerSettings, "event_prune_interval_sec")}


def scheduled_intervals(deployment: Deployment) -> dict[str, int]:
    broker = broker_intervals() if deployment.jobs == "scheduled" else {}
    return broker | (telemetry_intervals() if deployment.telemetry == "lambda" else {})


def server_settings(deployment: Deployment) -> dict[str, str]:
    """Server settings if jobs run as tasks: run a job only if its task did not. The servers read
    the time of the last run from the table."""
    if deployment.jobs != "scheduled":
        return {}
    intervals = broker_intervals()
    return {_INTERVALS[job].upper(): str(_TAKE_OVER * intervals[job]) for job in intervals}


class ScheduledJobs(Construct):
    def __init__(
        self,
        scope: Construct,
        deployment: Deployment,
        *,
        cluster: ecs.ICluster,
        task: Task,
        network: Network,
        key: kms.IKey,
    ) -> None:
        super().__init__(scope, "ScheduledJobs")
        self._deployment = deployment
        self.dead_letters = self._dead_letters(key)
        self._role = self._scheduler_role(cluster, task, key)
        scheduler.CfnScheduleGroup(self, "Schedules", name=deployment.name)
        self._target = self._ecs_target(task, network)
        self._cluster = cluster
        for job, seconds in scheduled_intervals(deployment).items():
            self._schedule(job, seconds)

    def _schedule(self, job: str, seconds: int) -> None:
        command = {"containerOverrides": [{"name": CONTAINER, "command": ["jobs", "run", job]}]}
        target = scheduler.CfnSchedule.TargetProperty(
            arn=self._cluster.cluster_arn,
            role_arn=self._role.role_arn,
            ecs_parameters=self._target,
            input=json.dumps(command),
            retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                maximum_event_age_in_seconds=max(60, min(seconds, 86_400)),
                maximum_retry_attempts=2,
            ),
            dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(
                arn=self.dead_letters.queue_arn
            ),
        )
        scheduler.CfnSchedule(
            self,
            job,
            name=f"{self._deployment.name}-{job}",
            group_name=self._deployment.name,
            description=f"The job {job} of {self._deployment.name}",
            schedule_expression=f"rate({seconds // 60} minutes)",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=target,
        ).node.add_dependency(self.node.find_child("Schedules"))

    def _ecs_target(
        self, task: Task, network: Network
    ) -> scheduler.CfnSchedule.EcsParametersProperty:
        subnets = network.vpc.select_subnets(subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS)
        place = scheduler.CfnSchedule.AwsVpcConfigurationProperty(
            subnets=subnets.subnet_ids,
            security_groups=[network.service_group.security_group_id],
            assign_public_ip="DISABLED",
        )
        return scheduler.CfnSchedule.EcsParametersProperty(
            task_definition_arn=task.definition.task_definition_arn,
            task_count=1,
            launch_type="FARGATE",
            propagate_tags="TASK_DEFINITION",
            network_configuration=scheduler.CfnSchedule.NetworkConfigurationProperty(
                awsvpc_configuration=place
            ),
        )

    def _scheduler_role(self, cluster: ecs.ICluster, task: Task, key: kms.IKey) -> iam.Role:
        """May start only this task in only this cluster."""
        role = iam.Role(
            self,
            "Role",
            description="Starts the tasks of jobs",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": self._deployment.account}},
            ),
        )
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["ecs:RunTask"],
                resources=[task.definition.task_definition_arn],
                conditions={"ArnEquals": {"ecs:cluster": cluster.cluster_arn}},
            )
        )
        task.definition.task_role.grant_pass_role(role)
        task.definition.obtain_execution_role().grant_pass_role(role)
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["sqs:SendMessage"], resources=[self.dead_letters.queue_arn]
            )
        )
        grant_use(key, role)
        return role

    def _dead_letters(self, key: kms.IKey) -> sqs.Queue:
        """Failed starts; an alarm reports them."""
        queue = sqs.Queue(
            self,
            "DeadLetters",
            queue_name=f"{self._deployment.name}-jobs-dead",
            encryption=sqs.QueueEncryption.KMS,
            encryption_master_key=key,
            enforce_ssl=True,
            retention_period=Duration.days(14),
        )
        acknowledge(queue, "SQS3", "It is where the scheduler puts what it could not start.")
        return queue


def job_command() -> list[str]:
    """The default command of the task, without a job: it lists them."""
    return ["jobs", "run", "--help"]


def _default(section: type[BrokerSettings | ServerSettings], field: str) -> int:
    return int(section.model_fields[field].default)

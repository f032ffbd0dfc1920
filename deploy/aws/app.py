"""The application: the registry, which must exist before the first image, and the deployments."""

from collections.abc import Mapping, Sequence

from aws_cdk import App, CfnOutput, DefaultStackSynthesizer, Environment, Stack, Tags, Validations
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_kms as kms
from cdk_nag import AwsSolutionsChecks
from constructs import Construct

from deploy.aws.alarms import Alarms
from deploy.aws.config import Deployment
from deploy.aws.dashboard import Dashboard
from deploy.aws.database import STORAGE_GIB
from deploy.aws.encryption import Encryption
from deploy.aws.firewall import Firewall
from deploy.aws.gateway import LONGEST_WAIT_SEC, Gateway
from deploy.aws.identity import Identity
from deploy.aws.jobs import ScheduledJobs, job_command, scheduled_intervals, server_settings
from deploy.aws.load_balancer import IDLE_SEC, LoadBalancer
from deploy.aws.metrics import BROKER_SELECTORS, Metrics, filter_readings, filter_requests
from deploy.aws.network import Network
from deploy.aws.pipeline import REPOSITORY, DeployRole, Registry
from deploy.aws.platform import PARTS, Platform
from deploy.aws.rollout import BlueGreen
from deploy.aws.secrets import Secrets, secret_variables
from deploy.aws.service import Service
from deploy.aws.sinks import Sinks, access_log_bucket
from deploy.aws.tables import Tables
from deploy.aws.tasks import Image, Task
from deploy.aws.telemetry_lambda import TelemetryFunction

REGISTRY_STACK = "sandyard-registry"
_FLAGS = (
    "@aws-cdk/aws-iam:minimizePolicies",
    "@aws-cdk/aws-iam:standardizedServicePrincipals",
    "@aws-cdk/aws-s3:serverAccessLogsUseBucketPolicy",
    "@aws-cdk/aws-s3:createDefaultLoggingPolicy",
    "@aws-cdk/aws-codedeploy:removeAlarmsFromDeploymentGroup",
)
"""CDK feature flags that are on by default only for new applications."""


def new_app(outdir: str | None = None) -> App:
    """An empty application; its synthesis fails if the security rules have findings."""
    app = App(outdir=outdir, context=dict.fromkeys(_FLAGS, True), analytics_reporting=False)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    return app


def add_deployments(app: App, deployments: Sequence[Deployment]) -> None:
    """A stack for each, preceded by one for the registry of each account."""
    by_account = {each.account: each for each in reversed(deployments)}
    by_account |= {each.account: each for each in deployments if each.github_repository}
    for deployment in by_account.values():
        registry = Registry(_stack(app, deployment, REGISTRY_STACK), deployment)
        _output(registry, "REPOSITORY_URI", registry.repository.repository_uri)
    for deployment in deployments:
        Sandyard(_stack(app, deployment, deployment.name), deployment)


def _stack(app: App, deployment: Deployment, name: str) -> Stack:
    stack = Stack(
        app,
        name,
        env=Environment(account=deployment.account, region=deployment.region),
        description=f"Sandyard: {name}",
        termination_protection=True,
        synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
    )
    shared = name == REGISTRY_STACK
    tags = {
        "project": "sandyard",
        "environment": "shared" if shared else deployment.environment,
        "cost-center": deployment.cost_center,
    }
    for key, value in tags.items():
        Tags.of(stack).add(key, value)
    return stack


class Sandyard(Construct):
    """Everything but the registry. Each part is a construct; they are connected here."""

    def __init__(self, scope: Construct, deployment: Deployment) -> None:
        super().__init__(scope, "Sandyard")
        self.deployment = deployment
        self.key: kms.IKey = Encryption(self, deployment).key
        self.network = Network(self, deployment, self.key)
        self.tables = Tables(self, deployment, self.key)
        self.secrets = Secrets(self, deployment, self.key)
        access_logs = access_log_bucket(self, deployment)
        self.sinks = Sinks(self, deployment, self.key, access_logs)
        self.identity = Identity(self, deployment) if deployment.identity else None
        self.metrics = Metrics(deployment)
        repository = ecr.Repository.from_repository_name(self, "Repository", REPOSITORY)
        self.image = Image(repository, deployment.image_tag)
        self.cluster = self._cluster()
        self.balancer = LoadBalancer(self, deployment, self.network, access_logs)
        Firewall(self, deployment, self.key, self.balancer.balancer.load_balancer_arn)
        if deployment.api_gateway:
            gateway = Gateway(self, deployment, self.network, self.balancer, self.key)
            _output(self, "BROKER_API_URL", gateway.api.api_endpoint)
        self.task = self._server_task()
        self.service = self._service()
        self.alarms = Alarms(self, deployment, self.key, self.metrics)
        self._watch_service()
        self._roll_out()
        self._add_jobs()
        self._add_telemetry()
        self._add_platform()
        self._watch_rotation()
        if deployment.github_repository is not None:
            DeployRole(self, deployment, self.secrets.secret("BROKER_API_TOKEN"))
        self._add_dashboard()
        self._add_outputs()

    def _cluster(self) -> ecs.Cluster:
        return ecs.Cluster(
            self,
            "Cluster",
            cluster_name=self.deployment.cluster_name,
            vpc=self.network.vpc,
            container_insights_v2=ecs.ContainerInsights.ENABLED,
        )

    def _server_task(self) -> Task:
        task = Task(self, "Server", self.deployment, self.image, self.key)
        self.tables.broker.grant_data(task.role)
        self.sinks.grant_send(task.role)
        telemetry = {}
        if self.deployment.telemetry == "service":
            telemetry = self._telemetry_settings(task)
        identity = self.identity.settings if self.identity is not None else {}
        task.add_server(
            {
                **self._pool_settings(task),
                **self._server_settings(task),
                **telemetry,
                **identity,
                **server_settings(self.deployment),
            }
        )
        task.add_metrics_agent(
            BROKER_SELECTORS, self.metrics.namespace, self.deployment.service_name
        )
        return task

    def _pool_settings(self, task: Task) -> dict[str, str]:
        """Settings of the pool and its provider, for servers and for jobs."""
        return {
            "POOL_STORE": "dynamodb",
            "DDB_TABLE_NAME": self.deployment.pool_table,
            "CSP_BASE_URL": self.deployment.provider_url,
            "CSP_DIALECT": self.deployment.provider_dialect,
            **self.secrets.settings(["CSP_API_TOKEN"], task.role),
        }

    def _server_settings(self, task: Task) -> dict[str, str]:
        return {
            "PARTS": ",".join(self.deployment.parts),
            "PUBLIC_URL": self.deployment.public_url,
            "TRUSTED_PROXIES": self.deployment.network,
            "KEEP_ALIVE_SEC": str(IDLE_SEC + 10),
            **(
                {"QUEUE_MAX_WAIT_SEC": str(LONGEST_WAIT_SEC)} if self.deployment.api_gateway else {}
            ),
            **self.sinks.settings,
            **self.secrets.settings(secret_variables("broker"), task.role),
        }

    def _telemetry_settings(self, server: Task | TelemetryFunction) -> dict[str, str]:
        secrets = self.secrets.settings(secret_variables("telemetry"), server.role)
        return {**self._readings_settings(server), **secrets}

    def _readings_settings(self, reader: Task | TelemetryFunction) -> dict[str, str]:
        self.tables.telemetry.grant_data(reader.role)
        prefix = self.deployment.telemetry_table_prefix
        named = {"TELEMETRY_TABLE_PREFIX": prefix} if prefix else {}
        return {"TELEMETRY_STORE": "dynamodb", **named}

    def _service(self) -> Service:
        is_blue_green = self.deployment.rollout == "blue-green"
        service = Service(
            self,
            "Service",
            self.deployment,
            cluster=self.cluster,
            service_name=self.deployment.service_name,
            task=self.task,
            group=self.network.service_group,
            is_blue_green=is_blue_green,
        )
        service.service.attach_to_application_target_group(self.balancer.blue)
        # After a switch the traffic is on the other group, whose requests would not be counted.
        service.scale(None if is_blue_green else self.balancer.blue)
        return service

    def _watch_service(self) -> None:
        filter_requests(self, self.metrics, self.task.log)
        alarms = self.alarms
        alarms.watch_pool()
        alarms.watch_provider()
        alarms.watch_requests(self.balancer.balancer)
        alarms.watch_jobs(self.deployment.parts)
        alarms.watch_deliveries()

    def _roll_out(self) -> None:
        if self.deployment.rollout == "rolling":
            self.alarms.watch_targets(self.balancer.balancer, [self.balancer.blue])
            self.service.roll_back_on(self.alarms.rollback)
            return
        green = self.balancer.target_group("Green")
        self.alarms.watch_targets(self.balancer.balancer, [self.balancer.blue, green])
        BlueGreen(
            self,
            self.deployment,
            service=self.service.service,
            balancer=self.balancer,
            green=green,
            alarms=self.alarms.rollback,
        )

    def _add_jobs(self) -> None:
        if not scheduled_intervals(self.deployment):
            return
        task = Task(self, "Jobs", self.deployment, self.image, self.key)
        settings: dict[str, str] = {}
        if self.deployment.jobs == "scheduled":
            self.tables.broker.grant_data(task.role)
            settings |= self._pool_settings(task)
        if self.deployment.telemetry == "lambda":
            settings |= self._readings_settings(task)
        task.add_command(job_command(), settings)
        jobs = ScheduledJobs(
            self,
            self.deployment,
            cluster=self.cluster,
            task=task,
            network=self.network,
            key=self.key,
        )
        self.alarms.watch_own(
            "SandyardJobNotStarted",
            jobs.dead_letters.metric_approximate_number_of_messages_visible(),
            "warning: The scheduler could not start a job. See docs/deploy-aws.md#jobs.",
        )

    def _add_telemetry(self) -> None:
        if self.deployment.telemetry == "lambda":
            self.telemetry = TelemetryFunction(self, self.deployment, self.image, self.key)
            settings = self._telemetry_settings(self.telemetry)
            self.telemetry.configure({**settings, "LOG_FORMAT": "json"})
            filter_readings(self, self.metrics, self.telemetry.log)
            _output(self, "TELEMETRY_URL", self.telemetry.api.api_endpoint)
        elif self.deployment.telemetry == "service":
            filter_readings(self, self.metrics, self.task.log)
        if self.deployment.telemetry != "none":
            self.alarms.watch_devices()

    def _add_platform(self) -> None:
        if not self.deployment.platform:
            return
        platform = Platform(
            self,
            self.deployment,
            cluster=self.cluster,
            network=self.network,
            balancer=self.balancer,
            secrets=self.secrets,
            image=self.image,
            key=self.key,
            metrics=self.metrics,
        )
        instance = platform.database.instance
        self.alarms.watch_sandboxes(platform.service_name)
        self.alarms.watch_jobs(PARTS, platform.service_name)
        self.alarms.watch_disk(instance.metric_free_storage_space(), STORAGE_GIB * 1024**3)

    def _watch_rotation(self) -> None:
        for function in self.secrets.rotations:
            self.alarms.watch_own(
                f"SandyardRotationFailed-{function.node.id}",
                function.metric_errors(),
                "warning: A secret could not be rotated. See docs/deploy-aws.md#secrets.",
            )

    def _add_dashboard(self) -> None:
        Dashboard(
            self,
            self.deployment,
            metrics=self.metrics,
            balancer=self.balancer.balancer,
            service=self.service.service,
            tables=[*self.tables.broker.tables, *self.tables.telemetry.tables],
        )

    def _add_outputs(self) -> None:
        outputs: Mapping[str, str] = {
            "ECS_CLUSTER_NAME": self.cluster.cluster_name,
            "ECS_SERVICE_NAME": self.service.service.service_name,
            "ALB_DNS_NAME": self.balancer.balancer.load_balancer_dns_name,
            "AWS_ACCOUNT_ID": self.deployment.account,
        }
        for name, value in outputs.items():
            _output(self, name, value)


def _output(scope: Construct, name: str, value: str) -> None:
    """CloudFormation allows only letters and digits; `AlbDnsName` is the setting ALB_DNS_NAME."""
    CfnOutput(scope, name, value=value).override_logical_id(
        "".join(word.capitalize() for word in name.split("_"))
    )

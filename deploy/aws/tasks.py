"""Tasks: one container of the image with its settings, under least-privilege roles."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import Aws, Duration
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.findings import acknowledge
from deploy.aws.logs import log_group
from deploy.aws.network import SERVICE

CONTAINER, UPGRADE = "sandyard", "upgrade"
METRICS_PORT = 9090
USER = "10001:10001"
AGENT_IMAGE = "public.ecr.aws/cloudwatch-agent/cloudwatch-agent:1.300062.0b1304"
STOP_TIMEOUT = Duration.seconds(30)
"""A server ends within 15 seconds of SIGTERM."""
_ALIVE = (
    "import urllib.request; "
    f"urllib.request.urlopen('http://127.0.0.1:{SERVICE}/healthz', timeout=2)"
)


@dataclass(frozen=True, slots=True)
class Image:
    """The image of the tasks."""

    repository: ecr.IRepository
    tag: str


class Task(Construct):
    """A task definition. `role` holds the program's permissions, which its user grants; the
    execution role may pull the image and write the log."""

    def __init__(
        self, scope: Construct, name: str, deployment: Deployment, image: Image, key: kms.IKey
    ) -> None:
        super().__init__(scope, name)
        self.family = f"{deployment.service_name}-{name.lower()}"
        self._deployment = deployment
        self._image = image
        self._key = key
        self.role = self._role("Role", f"What the task {self.family} may do")
        self.log = log_group(self, "Log", deployment, key, self.log_name)
        self.definition = ecs.FargateTaskDefinition(
            self,
            "Definition",
            family=self.family,
            cpu=deployment.task_cpu,
            memory_limit_mib=deployment.task_memory_mib,
            runtime_platform=ecs.RuntimePlatform(
                cpu_architecture=ecs.CpuArchitecture.X86_64,
                operating_system_family=ecs.OperatingSystemFamily.LINUX,
            ),
            task_role=self.role,
            execution_role=self._execution_role(),
            volumes=[ecs.Volume(name="data")],
        )
        acknowledge(self.definition, "ECS2", "The settings are no secrets; those are references.")

    def add_server(self, settings: Mapping[str, str]) -> None:
        """`sandyard serve` with these settings, after a schema upgrade if there is one."""
        address = "0.0.0.0"  # noqa: S104 - of the task's own network interface
        command = ["serve", "--host", address, "--port", str(SERVICE)]
        server = self._container(
            CONTAINER,
            command,
            settings,
            health_check=_health_check(),
            port_mappings=[ecs.PortMapping(container_port=SERVICE)],
        )
        upgrade = self.definition.find_container(UPGRADE)
        if upgrade is not None:
            server.add_container_dependencies(
                ecs.ContainerDependency(
                    container=upgrade, condition=ecs.ContainerDependencyCondition.SUCCESS
                )
            )

    def add_command(self, command: list[str], settings: Mapping[str, str]) -> None:
        """A program that runs to completion."""
        self._container(CONTAINER, command, settings)

    def add_upgrade(self, settings: Mapping[str, str]) -> None:
        """Upgrades the schema before the server starts; concurrent upgrades are serialized."""
        self._container(UPGRADE, ["db", "upgrade"], settings, essential=False)

    def _container(
        self, name: str, command: list[str], settings: Mapping[str, str], **more: Any
    ) -> ecs.ContainerDefinition:
        """A container of the image. Its file system is read-only except for /data."""
        region = {
            "AWS_REGION": self._deployment.region,
            "AWS_DEFAULT_REGION": self._deployment.region,
        }
        container = self.definition.add_container(
            name,
            container_name=name,
            image=ecs.ContainerImage.from_ecr_repository(self._image.repository, self._image.tag),
            command=command,
            environment=dict(sorted({**_COMMON, **region, **settings}.items())),
            user=USER,
            readonly_root_filesystem=True,
            linux_parameters=self._linux(name),
            logging=self._logging(name),
            stop_timeout=STOP_TIMEOUT,
            **more,
        )
        container.add_mount_points(
            ecs.MountPoint(container_path="/data", read_only=False, source_volume="data")
        )
        return container

    def add_metrics_agent(
        self, selectors: Mapping[str, list[str]], namespace: str, service: str
    ) -> None:
        """A sidecar that scrapes the server's metrics and writes some to CloudWatch. `selectors`
        has their names, by dimensions."""
        group = log_group(self, "Metrics", self._deployment, self._key, f"{self.log_name}-metrics")
        self.definition.add_container(
            "metrics",
            container_name="metrics",
            image=ecs.ContainerImage.from_registry(AGENT_IMAGE),
            essential=False,
            memory_limit_mib=256,
            environment={
                "PROMETHEUS_CONFIG_CONTENT": json.dumps(_scrape(service), sort_keys=True),
                "CW_CONFIG_CONTENT": json.dumps(
                    _agent(f"{self.log_name}-metrics", namespace, selectors), sort_keys=True
                ),
            },
            logging=self._logging("metrics"),
        )
        group.grant_write(self.role)
        group.grant(self.role, "logs:DescribeLogStreams")

    @property
    def log_name(self) -> str:
        return f"/sandyard/{self._deployment.name}/{self.node.id.lower()}"

    def _execution_role(self) -> iam.Role:
        role = self._role("ExecutionRole", f"Starts the task {self.family}", "-execution")
        self._image.repository.grant_pull(role)
        self.log.grant_write(role)
        acknowledge(role, "IAM5[Resource::*]", "A token for the registry is about no resource.")
        return role

    def _role(self, name: str, description: str, suffix: str = "") -> iam.Role:
        account = self._deployment.account
        source = f"arn:{Aws.PARTITION}:ecs:{self._deployment.region}:{account}:*"
        return iam.Role(
            self,
            name,
            role_name=f"{self._deployment.name}-task-{self.node.id.lower()}{suffix}",
            description=description,
            assumed_by=iam.ServicePrincipal(
                "ecs-tasks.amazonaws.com",
                conditions={
                    "ArnLike": {"aws:SourceArn": source},
                    "StringEquals": {"aws:SourceAccount": account},
                },
            ),
        )

    def _linux(self, name: str) -> ecs.LinuxParameters:
        linux = ecs.LinuxParameters(self, f"{name}-linux", init_process_enabled=True)
        linux.drop_capabilities(ecs.Capability.ALL)
        return linux

    def _logging(self, prefix: str) -> ecs.LogDriver:
        return ecs.LogDrivers.aws_logs(stream_prefix=prefix, log_group=self.log)


_COMMON = {
    "LOG_FORMAT": "json",
    "DATA_DIR": "/data",
    "TMPDIR": "/data",  # the only writable path
    "METRICS_PORT": str(METRICS_PORT),
}


def _health_check() -> ecs.HealthCheck:
    return ecs.HealthCheck(
        command=["CMD", "python", "-c", _ALIVE],
        interval=Duration.seconds(10),
        timeout=Duration.seconds(5),
        retries=3,
        start_period=Duration.seconds(30),
    )


def _scrape(service: str) -> dict[str, object]:
    """In Prometheus's format; JSON is valid YAML. A metric's own label `job` becomes
    `exported_job`."""
    target = {"targets": [f"127.0.0.1:{METRICS_PORT}"], "labels": {"service": service}}
    return {
        "global": {"scrape_interval": "60s", "scrape_timeout": "10s"},
        "scrape_configs": [{"job_name": "sandyard", "static_configs": [target]}],
    }


def _agent(group: str, namespace: str, selectors: Mapping[str, list[str]]) -> dict[str, object]:
    declarations = [
        {
            "source_labels": ["job"],
            "label_matcher": "^sandyard$",
            "dimensions": [["service", *filter(None, labels.split(","))]],
            "metric_selectors": [f"^{name}$" for name in names],
        }
        for labels, names in selectors.items()
    ]
    return {
        "logs": {
            "metrics_collected": {
                "prometheus": {
                    "prometheus_config_path": "env:PROMETHEUS_CONFIG_CONTENT",
                    "log_group_name": group,
                    "emf_processor": {
                        "metric_namespace": namespace,
                        "metric_declaration": declarations,
                    },
                }
            },
            "force_flush_interval": 5,
        }
    }

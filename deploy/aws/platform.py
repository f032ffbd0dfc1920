"""The Platform and Previews: a separate service on PostgreSQL, with sandboxes at E2B."""

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_kms as kms
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.database import Database
from deploy.aws.load_balancer import IDLE_SEC, LoadBalancer
from deploy.aws.metrics import PLATFORM_SELECTORS, Metrics
from deploy.aws.network import Network
from deploy.aws.secrets import Secrets, secret_variables
from deploy.aws.service import Service
from deploy.aws.tasks import Image, Task

_SUBMISSION = 587
PARTS = ("platform", "previews")


class Platform(Construct):
    """Separate tasks, so that none of them may read the Broker's tables or tokens."""

    def __init__(
        self,
        scope: Construct,
        deployment: Deployment,
        *,
        cluster: ecs.ICluster,
        network: Network,
        balancer: LoadBalancer,
        secrets: Secrets,
        image: Image,
        key: kms.IKey,
        metrics: Metrics,
    ) -> None:
        super().__init__(scope, "Platform")
        self.service_name = f"{deployment.service_name}-platform"
        group = network.add_group("Platform", "tasks of the Platform", may_call_out=True)
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(_SUBMISSION), "mail, over TLS")
        network.open_service(group)
        self.database = Database(self, deployment, network=network, key=key, client_group=group)
        task = Task(self, "Platform", deployment, image, key)
        settings = self._settings(deployment, secrets, task)
        task.add_upgrade(settings)
        task.add_server(settings)
        task.add_metrics_agent(PLATFORM_SELECTORS, metrics.namespace, self.service_name)
        self.service = Service(
            self,
            "Service",
            deployment,
            cluster=cluster,
            service_name=self.service_name,
            task=task,
            group=group,
        )
        if balancer.platform is None:
            raise ValueError("the load balancer has no target group for the Platform")
        self.service.service.attach_to_application_target_group(balancer.platform)
        self.service.scale(balancer.platform)
        secrets.rotations.append(self.database.rotate())

    def _settings(self, deployment: Deployment, secrets: Secrets, task: Task) -> dict[str, str]:
        variables = (*secret_variables("platform"), "E2B_API_KEY", "SMTP_URL")
        domain = {"SANDBOX_DOMAIN": deployment.sandbox_domain} if deployment.sandbox_domain else {}
        return {
            "PARTS": ",".join(PARTS),
            "PUBLIC_URL": deployment.public_url,
            "SANDBOX_RUNTIME": "e2b",
            "PREVIEW_PROVIDER": "e2b",
            "SIGNUP": "invite",
            "TRUSTED_PROXIES": deployment.network,
            "KEEP_ALIVE_SEC": str(IDLE_SEC + 10),
            **domain,
            **secrets.settings(variables, task.role),
            **self.database.settings(task.role),
        }

"""The load balancer: HTTPS with a modern policy, redirects from HTTP, access logs."""

from aws_cdk import Duration
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_s3 as s3
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.findings import acknowledge
from deploy.aws.network import HTTP, HTTPS, SERVICE, Network

IDLE_SEC = 120
"""Longer than a call may wait for a sandbox (QUEUE_MAX_WAIT_SEC)."""
DRAIN_SEC = 30
BROKER_PATHS = ("/v1/*", "/telemetry/*")


class LoadBalancer(Construct):
    """The only entry for callers."""

    def __init__(
        self, scope: Construct, deployment: Deployment, network: Network, access_logs: s3.IBucket
    ) -> None:
        super().__init__(scope, "LoadBalancer")
        self._network = network
        self.balancer = elb.ApplicationLoadBalancer(
            self,
            "Alb",
            load_balancer_name=deployment.name,
            vpc=network.vpc,
            internet_facing=True,
            security_group=network.load_balancer_group,
            idle_timeout=Duration.seconds(IDLE_SEC),
            drop_invalid_header_fields=True,
            deletion_protection=True,
        )
        self.balancer.log_access_logs(access_logs, "load-balancer")
        if not deployment.allowed_networks:
            acknowledge(
                network.load_balancer_group, "EC23", "The API is public; the firewall limits it."
            )
        self.blue = self.target_group("Blue")
        self.platform = self.target_group("Platform") if deployment.platform else None
        self.https = self._https(deployment)
        if self.platform is not None:
            self._route_to_broker()
        self.balancer.add_listener(
            "Http",
            port=HTTP,
            open=False,
            default_action=elb.ListenerAction.redirect(
                protocol="HTTPS", port=str(HTTPS), permanent=True
            ),
        )

    def target_group(self, name: str) -> elb.ApplicationTargetGroup:
        """Checks liveness, not readiness: otherwise a database outage would have every task
        replaced repeatedly."""
        return elb.ApplicationTargetGroup(
            self,
            name,
            vpc=self._network.vpc,
            port=SERVICE,
            protocol=elb.ApplicationProtocol.HTTP,
            target_type=elb.TargetType.IP,
            deregistration_delay=Duration.seconds(DRAIN_SEC),
            health_check=elb.HealthCheck(
                path="/healthz",
                healthy_http_codes="200",
                interval=Duration.seconds(10),
                timeout=Duration.seconds(5),
                healthy_threshold_count=2,
                unhealthy_threshold_count=3,
            ),
        )

    def _https(self, deployment: Deployment) -> elb.ApplicationListener:
        return self.balancer.add_listener(
            "Https",
            port=HTTPS,
            open=False,
            certificates=[elb.ListenerCertificate.from_arn(deployment.certificate_arn)],
            ssl_policy=elb.SslPolicy.TLS13_RES,
            default_target_groups=[self.platform or self.blue],
        )

    def _route_to_broker(self) -> None:
        """If there is a Platform, it serves the console and all paths not listed here."""
        self.https.add_target_groups(
            "Broker",
            priority=10,
            conditions=[elb.ListenerCondition.path_patterns(list(BROKER_PATHS))],
            target_groups=[self.blue],
        )

"""API Gateway in front of the Broker: an HTTP API for tracks, by a link into the network."""

from urllib.parse import urlsplit

from aws_cdk import aws_apigatewayv2 as api
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk.aws_apigatewayv2_integrations import HttpAlbIntegration
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.findings import acknowledge
from deploy.aws.http_api import add_stage
from deploy.aws.load_balancer import LoadBalancer
from deploy.aws.network import HTTPS, Network

PATHS = ("/v1/allocate", "/v1/queue", "/v1/release", "/v1/sandboxes/{path+}")
"""The calls of tracks. Operators call the load balancer, whose firewall knows their addresses."""
LONGEST_WAIT_SEC = 25
"""An HTTP API ends a call after 30 seconds: none may wait for a sandbox that long."""


class Gateway(Construct):
    def __init__(
        self,
        scope: Construct,
        deployment: Deployment,
        network: Network,
        balancer: LoadBalancer,
        key: kms.IKey,
    ) -> None:
        super().__init__(scope, "Gateway")
        self.api = api.HttpApi(
            self, "Api", api_name=f"{deployment.name}-broker", create_default_stage=False
        )
        integration = HttpAlbIntegration(
            "Integration",
            balancer.https,
            vpc_link=self._link(deployment, network),
            secure_server_name=urlsplit(deployment.public_url).hostname,
        )
        for path in PATHS:
            self.api.add_routes(path=path, methods=[api.HttpMethod.ANY], integration=integration)
        acknowledge(self.api, "APIG4", "The Broker checks the tokens of tracks itself.")
        add_stage(self, deployment, key, self.api, "broker-api")

    def _link(self, deployment: Deployment, network: Network) -> api.VpcLink:
        """From private subnets, and only to the load balancer."""
        group = network.add_group("Gateway", "the link of API Gateway")
        port = ec2.Port.tcp(HTTPS)
        group.add_egress_rule(network.load_balancer_group, port, "to the load balancer")
        network.load_balancer_group.add_ingress_rule(group, port, "API Gateway")
        private = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS)
        return api.VpcLink(
            self,
            "Link",
            vpc=network.vpc,
            vpc_link_name=f"{deployment.name}-broker",
            subnets=private,
            security_groups=[group],
        )

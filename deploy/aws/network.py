"""The network: zones, egress, and allowed connections between security groups."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.logs import log_group

HTTPS, HTTP, SERVICE, POSTGRESQL = 443, 80, 8080, 5432


class Network(Construct):
    """Load balancers in public subnets, tasks in private ones, databases in isolated ones.

    Each security group allows only the connections listed here.
    """

    def __init__(self, scope: Construct, deployment: Deployment, key: kms.IKey) -> None:
        super().__init__(scope, "Network")
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(deployment.network),
            availability_zones=list(deployment.zones),
            nat_gateways=deployment.nat_gateways,
            subnet_configuration=_subnets(deployment),
            gateway_endpoints={
                "DynamoDb": ec2.GatewayVpcEndpointOptions(
                    service=ec2.GatewayVpcEndpointAwsService.DYNAMODB
                ),
                "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3),
            },
        )
        self._add_flow_log(deployment, key)
        self.load_balancer_group = self._group("LoadBalancer", "callers, to the load balancer")
        self.service_group = self._group("Service", "the tasks", may_call_out=True)
        self._open_to_callers(deployment)

    def _group(
        self, name: str, description: str, *, may_call_out: bool = False
    ) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self,
            f"{name}Group",
            vpc=self.vpc,
            description=f"Sandyard: {description}",
            allow_all_outbound=False,
        )
        if may_call_out:
            group.add_egress_rule(
                ec2.Peer.any_ipv4(), ec2.Port.tcp(HTTPS), "AWS and the provider, over TLS"
            )
        return group

    def _open_to_callers(self, deployment: Deployment) -> None:
        for network in deployment.allowed_networks or ("0.0.0.0/0",):
            peer = ec2.Peer.ipv6(network) if ":" in network else ec2.Peer.ipv4(network)
            for port, why in ((HTTPS, "callers"), (HTTP, "redirected to HTTPS")):
                self.load_balancer_group.add_ingress_rule(peer, ec2.Port.tcp(port), why)
        self.open_service(self.service_group)

    def open_service(self, group: ec2.SecurityGroup) -> None:
        """Let only the load balancer reach tasks of this group."""
        port = ec2.Port.tcp(SERVICE)
        group.add_ingress_rule(self.load_balancer_group, port, "from the load balancer")
        self.load_balancer_group.add_egress_rule(group, port, "to the tasks")

    def add_group(
        self, name: str, description: str, *, may_call_out: bool = False
    ) -> ec2.SecurityGroup:
        return self._group(name, description, may_call_out=may_call_out)

    def _add_flow_log(self, deployment: Deployment, key: kms.IKey) -> None:
        group = log_group(self, "FlowLog", deployment, key, f"/sandyard/{deployment.name}/flows")
        group.apply_removal_policy(RemovalPolicy.DESTROY)
        self.vpc.add_flow_log(
            "FlowLogs",
            destination=ec2.FlowLogDestination.to_cloud_watch_logs(group),
            traffic_type=ec2.FlowLogTrafficType.REJECT,
        )


def _subnets(deployment: Deployment) -> list[ec2.SubnetConfiguration]:
    kinds = [
        ("Public", ec2.SubnetType.PUBLIC, 24),
        ("Private", ec2.SubnetType.PRIVATE_WITH_EGRESS, 20),
    ]
    if deployment.platform:
        kinds.append(("Database", ec2.SubnetType.PRIVATE_ISOLATED, 24))
    return [
        ec2.SubnetConfiguration(
            name=name, subnet_type=kind, cidr_mask=mask, map_public_ip_on_launch=False
        )
        if kind == ec2.SubnetType.PUBLIC
        else ec2.SubnetConfiguration(name=name, subnet_type=kind, cidr_mask=mask)
        for name, kind, mask in kinds
    ]

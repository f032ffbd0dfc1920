"""PostgreSQL for the Platform: encrypted, in two zones, with backups and password rotation."""

import string

from aws_cdk import Duration, RemovalPolicy, SecretValue
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_rds as rds
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.findings import acknowledge
from deploy.aws.network import POSTGRESQL, Network
from deploy.aws.secrets import REFERENCE, add_rotation, rotation_function

NAME = OWNER = "sandyard"
STORAGE_GIB = 50


class Database(Construct):
    def __init__(
        self,
        scope: Construct,
        deployment: Deployment,
        *,
        network: Network,
        key: kms.IKey,
        client_group: ec2.SecurityGroup,
    ) -> None:
        super().__init__(scope, "Database")
        self._deployment = deployment
        self._key = key
        self.owner = rds.DatabaseSecret(
            self, "Owner", username=OWNER, encryption_key=key, exclude_characters=string.punctuation
        )
        acknowledge(self.owner, "SMG4", "It is rotated together with the URL that holds it too.")
        group = network.add_group("Database", "PostgreSQL")
        group.add_ingress_rule(client_group, ec2.Port.tcp(POSTGRESQL), "the Platform")
        client_group.add_egress_rule(group, ec2.Port.tcp(POSTGRESQL), "to PostgreSQL")
        self.instance = self._instance(network, group)
        self.url = self._url()

    def settings(self, reader: iam.IGrantable) -> dict[str, str]:
        self.url.grant_read(reader)
        return {"DATABASE_URL": f"{REFERENCE}{self._url_name}"}

    def rotate(self) -> functions.Function:
        """Servers reread the URL when PostgreSQL refuses the old password."""
        environment = {
            "DATABASE": self.instance.instance_identifier,
            "OWNER": self.owner.secret_arn,
        }
        function = rotation_function(
            self, "database", self._deployment, self._key, environment=environment
        )
        function.add_to_role_policy(
            iam.PolicyStatement(
                actions=["rds:ModifyDBInstance", "rds:DescribeDBInstances"],
                resources=[self.instance.instance_arn],
            )
        )
        self.owner.grant_write(function)
        add_rotation(self.url, function, self._deployment)
        return function

    @property
    def _url_name(self) -> str:
        return f"{self._deployment.name}/database-url"

    def _instance(self, network: Network, group: ec2.ISecurityGroup) -> rds.DatabaseInstance:
        instance = rds.DatabaseInstance(
            self,
            "Instance",
            instance_identifier=self._deployment.name,
            engine=rds.DatabaseInstanceEngine.postgres(version=rds.PostgresEngineVersion.VER_17_9),
            instance_type=ec2.InstanceType(self._deployment.database_class),
            credentials=rds.Credentials.from_secret(self.owner),
            database_name=NAME,
            vpc=network.vpc,
            vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED),
            security_groups=[group],
            multi_az=True,
            allocated_storage=STORAGE_GIB,
            max_allocated_storage=10 * STORAGE_GIB,
            storage_type=rds.StorageType.GP3,
            storage_encrypted=True,
            storage_encryption_key=self._key,
            backup_retention=Duration.days(14),
            copy_tags_to_snapshot=True,
            deletion_protection=True,
            removal_policy=RemovalPolicy.RETAIN,
            publicly_accessible=False,
            iam_authentication=False,
            auto_minor_version_upgrade=True,
            cloudwatch_logs_exports=["postgresql", "upgrade"],
            parameters={"rds.force_ssl": "1"},
        )
        acknowledge(instance, "RDS11", "Only the Platform's tasks reach the port, whichever it is.")
        return instance

    def _url(self) -> secretsmanager.Secret:
        password = self.owner.secret_value_from_json("password").unsafe_unwrap()
        host = f"{self.instance.instance_endpoint.hostname}:{POSTGRESQL}"
        return secretsmanager.Secret(
            self,
            "Url",
            secret_name=self._url_name,
            description=f"The setting DATABASE_URL of {self._deployment.name}",
            encryption_key=self._key,
            secret_string_value=SecretValue.unsafe_plain_text(
                f"postgresql://{OWNER}:{password}@{host}/{NAME}?ssl=require"
            ),
            removal_policy=RemovalPolicy.RETAIN,
        )

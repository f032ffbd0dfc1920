"""DynamoDB tables, from the definitions that `sandyard tables create` uses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Aws, RemovalPolicy
from aws_cdk import aws_applicationautoscaling as scaling
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.encryption import grant_use
from sandyard.broker.stores import dynamo_table as pool
from sandyard.kit.dynamo.tables import (
    Definition,
    ScalingTarget,
    TableSpec,
    provisioned,
    scaling_targets,
)
from sandyard.telemetry.stores import dynamo_tables as telemetry

_DATA = (
    "dynamodb:GetItem",
    "dynamodb:BatchGetItem",
    "dynamodb:Query",
    "dynamodb:Scan",
    "dynamodb:PutItem",
    "dynamodb:UpdateItem",
    "dynamodb:DeleteItem",
    "dynamodb:ConditionCheckItem",
    "dynamodb:DescribeTable",
)
"""The calls of a server and its jobs; they neither create nor delete tables. Jobs that remove old
events and verify the data read whole tables, hence Scan."""
_UTILIZATION = {
    "ReadCapacityUnits": "DynamoDBReadCapacityUtilization",
    "WriteCapacityUnits": "DynamoDBWriteCapacityUtilization",
}


@dataclass(frozen=True, slots=True)
class PartTables:
    """The tables of one part."""

    tables: Sequence[dynamodb.CfnTable]
    arns: Sequence[str]
    """Of the tables and of each index."""
    key: kms.IKey

    def grant_data(self, grantee: iam.IGrantable) -> None:
        grantee.grant_principal.add_to_principal_policy(
            iam.PolicyStatement(actions=list(_DATA), resources=list(self.arns))
        )
        grant_use(self.key, grantee)


class Tables(Construct):
    """On-demand or provisioned with auto scaling; with backups, encryption and deletion
    protection."""

    def __init__(self, scope: Construct, deployment: Deployment, key: kms.IKey) -> None:
        super().__init__(scope, "Tables")
        self._deployment = deployment
        self._key = key
        names = pool.TableNames(table=deployment.pool_table)
        self.broker = self._part(pool.table_specs(names))
        self.telemetry = (
            self._part(telemetry.table_specs(deployment.telemetry_table_prefix))
            if deployment.telemetry != "none"
            else PartTables((), (), key)
        )

    def _part(self, specs: Sequence[TableSpec]) -> PartTables:
        made = [self._table(spec) for spec in specs]
        arns = [arn for spec in specs for arn in self._arns(spec.definition)]
        return PartTables(made, arns, self._key)

    def _arns(self, definition: Definition) -> list[str]:
        place = f"{self._deployment.region}:{self._deployment.account}"
        table = f"arn:{Aws.PARTITION}:dynamodb:{place}:table/{definition['TableName']}"
        indexes = [each["IndexName"] for each in definition.get("GlobalSecondaryIndexes", ())]
        return [table, *(f"{table}/index/{name}" for name in indexes)]

    def _table(self, spec: TableSpec) -> dynamodb.CfnTable:
        is_provisioned = self._deployment.billing == "provisioned"
        definition = provisioned(spec.definition) if is_provisioned else spec.definition
        table = dynamodb.CfnTable(
            self,
            spec.name,
            **_properties(definition),
            time_to_live_specification=_time_to_live(spec),
            point_in_time_recovery_specification=_RECOVERY,
            sse_specification=dynamodb.CfnTable.SSESpecificationProperty(
                sse_enabled=True, sse_type="KMS", kms_master_key_id=self._key.key_arn
            ),
            deletion_protection_enabled=True,
        )
        table.apply_removal_policy(RemovalPolicy.RETAIN)
        for target in scaling_targets(definition) if is_provisioned else ():
            self._scale(table, target)
        return table

    def _scale(self, table: dynamodb.CfnTable, target: ScalingTarget) -> None:
        name = f"{target.resource_id.replace('/', '-')}-{target.dimension.split(':')[-1]}"
        scalable = scaling.CfnScalableTarget(
            self,
            f"{name}-target",
            service_namespace="dynamodb",
            resource_id=target.resource_id,
            scalable_dimension=target.dimension,
            min_capacity=target.least,
            max_capacity=target.most,
        )
        scalable.node.add_dependency(table)
        tracking = scaling.CfnScalingPolicy.TargetTrackingScalingPolicyConfigurationProperty(
            target_value=target.utilization,
            predefined_metric_specification=_predefined(target),
        )
        scaling.CfnScalingPolicy(
            self,
            f"{name}-policy",
            policy_name=f"{name}-at-{target.utilization}-percent",
            policy_type="TargetTrackingScaling",
            scaling_target_id=scalable.ref,
            target_tracking_scaling_policy_configuration=tracking,
        )


_RECOVERY = dynamodb.CfnTable.PointInTimeRecoverySpecificationProperty(
    point_in_time_recovery_enabled=True
)


def _properties(definition: Definition) -> dict[str, Any]:
    """Converts a definition from `CreateTable`'s form to the construct's."""
    table = dynamodb.CfnTable
    properties: dict[str, Any] = {
        "table_name": definition["TableName"],
        "billing_mode": definition["BillingMode"],
        "attribute_definitions": [
            table.AttributeDefinitionProperty(
                attribute_name=each["AttributeName"], attribute_type=each["AttributeType"]
            )
            for each in definition["AttributeDefinitions"]
        ],
        "key_schema": _keys(definition["KeySchema"]),
        "provisioned_throughput": _capacity(definition),
    }
    if indexes := definition.get("GlobalSecondaryIndexes"):
        properties["global_secondary_indexes"] = [_index(each) for each in indexes]
    return properties


def _index(index: dict[str, Any]) -> dynamodb.CfnTable.GlobalSecondaryIndexProperty:
    return dynamodb.CfnTable.GlobalSecondaryIndexProperty(
        index_name=index["IndexName"],
        key_schema=_keys(index["KeySchema"]),
        projection=dynamodb.CfnTable.ProjectionProperty(
            projection_type=index["Projection"]["ProjectionType"]
        ),
        provisioned_throughput=_capacity(index),
    )


def _keys(schema: Sequence[dict[str, str]]) -> list[dynamodb.CfnTable.KeySchemaProperty]:
    return [
        dynamodb.CfnTable.KeySchemaProperty(
            attribute_name=each["AttributeName"], key_type=each["KeyType"]
        )
        for each in schema
    ]


def _capacity(
    definition: dict[str, Any],
) -> dynamodb.CfnTable.ProvisionedThroughputProperty | None:
    capacity = definition.get("ProvisionedThroughput")
    if capacity is None:
        return None
    return dynamodb.CfnTable.ProvisionedThroughputProperty(
        read_capacity_units=capacity["ReadCapacityUnits"],
        write_capacity_units=capacity["WriteCapacityUnits"],
    )


def _time_to_live(spec: TableSpec) -> dynamodb.CfnTable.TimeToLiveSpecificationProperty | None:
    if spec.ttl is None:
        return None
    return dynamodb.CfnTable.TimeToLiveSpecificationProperty(attribute_name=spec.ttl, enabled=True)


def _predefined(
    target: ScalingTarget,
) -> scaling.CfnScalingPolicy.PredefinedMetricSpecificationProperty:
    return scaling.CfnScalingPolicy.PredefinedMetricSpecificationProperty(
        predefined_metric_type=_UTILIZATION[target.dimension.split(":")[-1]]
    )

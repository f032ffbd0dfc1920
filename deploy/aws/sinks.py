"""Event sinks: a topic, a queue, and a bucket with immutable objects."""

from typing import cast

from aws_cdk import CfnElement, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.encryption import grant_use
from deploy.aws.findings import acknowledge

_MOST_RECEIVES = 5
_FOLDER = "events"


class Sinks(Construct):
    """The configured sinks. Topic and queue are FIFO: ordered per subject."""

    def __init__(
        self, scope: Construct, deployment: Deployment, key: kms.IKey, access_logs: s3.IBucket
    ) -> None:
        super().__init__(scope, "Sinks")
        self._deployment = deployment
        self._key = key
        wanted = deployment.sinks
        self.topic = self._topic() if "sns" in wanted else None
        self.queue = self._queue() if "sqs" in wanted else None
        self.bucket = self._bucket(access_logs) if "s3" in wanted else None

    @property
    def settings(self) -> dict[str, str]:
        """EVENT_SINKS and the settings of each sink."""
        addresses = {
            "EVENT_SNS_TOPIC_ARN": None if self.topic is None else self.topic.topic_arn,
            "EVENT_SQS_QUEUE_URL": None if self.queue is None else self.queue.queue_url,
            "EVENT_S3_URL": None if self.bucket is None else _url_of(self.bucket),
        }
        names = ",".join(("webhooks", *self._deployment.sinks))
        return {"EVENT_SINKS": names, **{k: v for k, v in addresses.items() if v is not None}}

    def grant_send(self, sender: iam.Role) -> None:
        """Allow adding events, but not reading, changing or removing them."""
        if self.topic is not None:
            _allow(sender, "sns:Publish", self.topic.topic_arn)
        if self.queue is not None:
            _allow(sender, "sqs:SendMessage", self.queue.queue_arn)
        if self.bucket is not None:
            self._grant_put(self.bucket, sender)
        grant_use(self._key, sender)

    def _grant_put(self, bucket: s3.Bucket, sender: iam.Role) -> None:
        sender.add_to_policy(
            iam.PolicyStatement(
                actions=["s3:PutObject", "s3:AbortMultipartUpload"],
                resources=[bucket.arn_for_objects(f"{_FOLDER}/*")],
            )
        )
        name = Stack.of(bucket).get_logical_id(cast("CfnElement", bucket.node.default_child))
        finding = f"IAM5[Resource::<{name}.Arn>/{_FOLDER}/*]"
        acknowledge(sender, finding, "The names of the objects come from the time.")

    def _topic(self) -> sns.Topic:
        return sns.Topic(
            self,
            "Topic",
            topic_name=f"{self._deployment.name}-events.fifo",
            fifo=True,
            content_based_deduplication=False,
            enforce_ssl=True,
            master_key=self._key,
        )

    def _queue(self) -> sqs.Queue:
        dead = self._plain_queue("DeadLetters", "events-dead", None)
        acknowledge(dead, "SQS3", "It is where others put what can't be delivered.")
        return self._plain_queue(
            "Queue", "events", sqs.DeadLetterQueue(queue=dead, max_receive_count=_MOST_RECEIVES)
        )

    def _plain_queue(
        self, name: str, plain_name: str, dead_letters: sqs.DeadLetterQueue | None
    ) -> sqs.Queue:
        return sqs.Queue(
            self,
            name,
            queue_name=f"{self._deployment.name}-{plain_name}.fifo",
            fifo=True,
            content_based_deduplication=False,
            encryption=sqs.QueueEncryption.KMS,
            encryption_master_key=self._key,
            enforce_ssl=True,
            retention_period=Duration.days(14),
            dead_letter_queue=dead_letters,
            removal_policy=RemovalPolicy.RETAIN,
        )

    def _bucket(self, access_logs: s3.IBucket) -> s3.Bucket:
        return s3.Bucket(
            self,
            "Audit",
            bucket_name=f"{self._deployment.name}-audit-{self._deployment.account}",
            versioned=True,
            object_lock_enabled=True,
            object_lock_default_retention=s3.ObjectLockRetention.compliance(
                Duration.days(self._deployment.audit_retention_days)
            ),
            encryption=s3.BucketEncryption.KMS,
            encryption_key=self._key,
            bucket_key_enabled=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            server_access_logs_bucket=access_logs,
            server_access_logs_prefix="audit/",
            removal_policy=RemovalPolicy.RETAIN,
        )


def _url_of(bucket: s3.Bucket) -> str:
    return f"s3://{bucket.bucket_name}/{_FOLDER}"


def _allow(role: iam.Role, action: str, resource: str) -> None:
    role.add_to_policy(iam.PolicyStatement(actions=[action], resources=[resource]))


def access_log_bucket(scope: Construct, deployment: Deployment) -> s3.Bucket:
    """For the access logs of the load balancer and of the audit bucket, which support only S3's own
    encryption."""
    bucket = s3.Bucket(
        scope,
        "AccessLogs",
        bucket_name=f"{deployment.name}-access-logs-{deployment.account}",
        encryption=s3.BucketEncryption.S3_MANAGED,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        enforce_ssl=True,
        minimum_tls_version=1.2,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        lifecycle_rules=[s3.LifecycleRule(expiration=Duration.days(deployment.log_retention_days))],
        removal_policy=RemovalPolicy.RETAIN,
    )
    acknowledge(bucket, "S1", "It holds access logs itself.")
    return bucket

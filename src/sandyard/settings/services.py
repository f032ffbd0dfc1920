"""Settings of services that parts use: E2B, Kubernetes, DynamoDB and OpenTelemetry."""

from typing import Annotated

from pydantic import Field

from sandyard.kit.patterns import pattern
from sandyard.settings.fields import URL, Seconds, Section, Token

_NAME = pattern(r"^[A-Za-z0-9_.-]{3,255}$", "must be 3 to 255 letters, digits, _, . and -")
_TABLE = pattern(r"^[A-Za-z0-9_.-]{3,249}$", "must be 3 to 249 letters, digits, _, . and -")
"""The name of its event table is derived from it."""
_HOST = pattern(r"^[A-Za-z0-9.-]+(:[0-9]{1,5})?$", "must be a domain such as example.com")
_REGION = pattern(r"^[A-Za-z0-9-]{1,63}$", "must be a region such as us-east-1")
_LABEL = pattern(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", "must be a name such as sandboxes")
_SERVICE = pattern(r"^[A-Za-z0-9.-]+:[0-9]{1,5}$", "must be host:port")
_Name = Annotated[str, Field(pattern=_NAME)]


class E2bSettings(Section):
    """E2B, for sandboxes or previews that run there."""

    e2b_api_key: Token = None
    """API key for E2B."""
    e2b_domain: str = Field("e2b.app", pattern=_HOST)
    """Domain of E2B: its control API is `api.` of it, its sandboxes are below it."""
    e2b_api_url: URL | None = None
    """URL of the control API. Unset: that of `E2B_DOMAIN`."""
    e2b_sandbox_url: URL | None = None
    """URL of the sandboxes' file API. Unset: that of `E2B_DOMAIN`."""
    e2b_template: str = "base"
    """E2B template for sandboxes and previews."""
    e2b_port: int = Field(8080, ge=1, le=65535)
    """Port in the E2B sandbox that a preview or program listens on."""


class KubernetesSettings(Section):
    """The cluster, for sandboxes that run as its Pods."""

    kubernetes_url: URL | None = None
    """URL of the API server. Unset: that of the cluster in which this server itself is a Pod."""
    kubernetes_namespace: str = Field("sandyard-sandboxes", pattern=_LABEL)
    """Namespace of the sandboxes' Pods: theirs alone."""
    kubernetes_token_file: str | None = None
    """File with the token for the API server. Unset: the Pod's own service account."""
    kubernetes_ca_file: str | None = None
    """Certificates that the API server's is checked against. Unset: the Pod's own."""
    kubernetes_agent_image: str | None = None
    """Image of this product: an init container copies the agent out of it. Needed."""
    kubernetes_image: str = "python:3.12-slim-bookworm"
    """Image in which a sandbox without an environment runs."""
    kubernetes_images: str = ""
    """More images, as environments for templates: `name=image`, comma-separated. Each may be
    followed by `;root`, `;read-only` and `;class=` with a RuntimeClass."""
    kubernetes_root_namespace: str | None = Field(None, pattern=_LABEL)
    """Namespace of the Pods whose image has `;root`. Unset: no image may."""
    kubernetes_gvisor_class: str | None = None
    """RuntimeClass of the sandboxes that ask for gVisor. Unset: those can't start."""
    kubernetes_egress_proxy: str | None = Field(None, pattern=_SERVICE)
    """Service of the egress proxy, which sandboxes connect to: `host:port`. Unset: they reach
    nothing."""
    kubernetes_egress_replicas: str | None = Field(None, pattern=_SERVICE)
    """Service with the address of each of its Pods, which the server asks. Unset: the same."""
    kubernetes_priority_class: str | None = None
    """PriorityClass of the sandboxes' Pods."""
    kubernetes_volume_class: str | None = None
    """StorageClass of volumes. Unset: the cluster's default."""
    kubernetes_start_timeout_sec: Seconds = 120
    """Timeout for placing a Pod, pulling its images and reaching its agent."""
    kubernetes_lost_sec: Seconds = 600
    """How long the files of a sandbox that has ended on a node that is cut off are waited for."""


class DynamoSettings(Section):
    """DynamoDB, for the parts that use it. Credentials come from the AWS default chain."""

    ddb_table_name: str = Field("SandboxPool", pattern=_TABLE)
    """Name of the Broker's table."""
    ddb_gsi1_name: _Name = "StatusIndex"
    """Index on status."""
    ddb_gsi2_name: _Name = "TrackIndex"
    """Index on allocated_to_track."""
    ddb_gsi3_name: _Name = "IdempotencyIndex"
    """Index on idempotency_key."""
    ddb_events_table_name: _Name | None = None
    """Name of the Broker's event table. Unset: DDB_TABLE_NAME + Events."""
    ddb_endpoint_url: URL | None = None
    """URL of the DynamoDB endpoint. Unset: AWS."""
    aws_region: str = Field("us-east-1", pattern=_REGION)
    """AWS region of the tables."""


class OtelSettings(Section):
    """OpenTelemetry: traces over OTLP, off unless an endpoint is named."""

    otel_exporter_otlp_endpoint: URL | None = None
    """URL of a collector that accepts OTLP over HTTP, such as `http://collector:4318`. Unset: no
    traces are sent."""
    otel_exporter_otlp_headers: Token = None
    """Headers for the collector, such as `api-key=…`, comma-separated."""
    otel_service_name: str = "sandyard"
    """Name of this service in traces."""
    otel_traces_sampler_arg: float = Field(0.01, ge=0, le=1)
    """Share of the requests and jobs that are traced. For a request with `traceparent`, the caller
    decides."""

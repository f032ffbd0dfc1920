"""Settings of services that several parts use: E2B, DynamoDB and OpenTelemetry."""

from typing import Annotated

from pydantic import Field

from sandyard.kit.patterns import pattern
from sandyard.settings.fields import URL, Section, Token

_NAME = pattern(r"^[A-Za-z0-9_.-]{3,255}$", "must be 3 to 255 letters, digits, _, . and -")
_TABLE = pattern(r"^[A-Za-z0-9_.-]{3,249}$", "must be 3 to 249 letters, digits, _, . and -")
"""The name of its event table is derived from it."""
_HOST = pattern(r"^[A-Za-z0-9.-]+(:[0-9]{1,5})?$", "must be a domain such as example.com")
_REGION = pattern(r"^[A-Za-z0-9-]{1,63}$", "must be a region such as us-east-1")
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

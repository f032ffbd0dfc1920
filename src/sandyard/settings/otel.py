"""Settings of OpenTelemetry, by the names that all its programs share."""

from pydantic import Field

from sandyard.settings.fields import URL, Section, Token


class OtelSettings(Section):
    """OpenTelemetry: traces over OTLP, off unless an endpoint is named."""

    otel_exporter_otlp_endpoint: URL | None = Field(
        None,
        description="URL of a collector that accepts OTLP over HTTP, such as "
        "`http://collector:4318`. Unset: no traces are sent.",
    )
    otel_exporter_otlp_headers: Token = Field(
        None, description="Headers for the collector, such as `api-key=…`, comma-separated."
    )
    otel_service_name: str = Field("sandyard", description="Name of this service in traces.")
    otel_traces_sampler_arg: float = Field(
        0.01,
        ge=0,
        le=1,
        description="Share of the requests and jobs that are traced. For a request with "
        "`traceparent`, the caller decides.",
    )

"""Settings of the delivery of events to sinks."""

from ipaddress import IPv4Network, IPv6Network

from pydantic import Field, field_validator

from sandyard.kit.patterns import pattern
from sandyard.settings.fields import Hours, Seconds, Section, networks

SINKS = ("webhooks", "sns", "sqs", "s3")
_KINDS = pattern(
    r"^(\*|[a-z_.]+\*?)(,(\*|[a-z_.]+\*?))*$", "must be kinds such as lease.*,pool.low"
)


class DeliverySettings(Section):
    """Sinks of events."""

    event_sinks: str = Field(
        "webhooks",
        description="Sinks for events, comma-separated: `webhooks`, `sns`, `sqs`, `s3`; or `none`.",
    )
    event_sqs_queue_url: str | None = Field(
        None,
        pattern=pattern(r"^https?://\S+$", "must be the URL of a queue"),
        description="Queue of the sink `sqs`.",
    )
    event_sqs_kinds: str | None = Field(
        None, pattern=_KINDS, description="Kinds of events to send to it. Unset: all."
    )
    event_sns_topic_arn: str | None = Field(
        None,
        pattern=pattern(r"^arn:aws[a-z-]*:sns:\S+$", "must be the ARN of a topic"),
        description="Topic of the sink `sns`.",
    )
    event_sns_kinds: str | None = Field(
        None, pattern=_KINDS, description="Kinds of events to send to it. Unset: all."
    )
    event_s3_url: str | None = Field(
        None,
        pattern=pattern(r"^s3://[a-z0-9.-]+(/\S*)?$", "must be s3://BUCKET or s3://BUCKET/PREFIX"),
        description="Bucket and prefix of the sink `s3`.",
    )
    event_s3_kinds: str | None = Field(
        None, pattern=_KINDS, description="Kinds of events to send to it. Unset: all."
    )
    event_retry_base_sec: Seconds = Field(
        1, description="Maximum delay after an event's first failed delivery; it doubles each time."
    )
    event_retry_max_sec: Seconds = Field(300, description="Maximum delay between two deliveries.")
    event_retry_hours: Hours = Field(
        24, description="How long a webhook may fail before it is disabled."
    )
    webhook_timeout_sec: Seconds = Field(15, description="Timeout for a webhook's response.")
    webhook_allowed_networks: str | None = Field(
        None,
        description="Private networks that webhooks may use, comma-separated, such as "
        "`10.0.0.0/8`. Public addresses are always allowed.",
    )

    @field_validator("event_sinks")
    @classmethod
    def _known_sinks(cls, text: str) -> str:
        names = _names(text)
        if not set(names) <= {*SINKS, "none"} or ("none" in names and len(names) > 1):
            raise ValueError(f"must be some of {', '.join(SINKS)}, comma-separated, or none")
        return text

    @field_validator("webhook_allowed_networks")
    @classmethod
    def _are_networks(cls, text: str | None) -> str | None:
        networks(text or "")
        return text

    @property
    def sinks(self) -> tuple[str, ...]:
        return tuple(name for name in _names(self.event_sinks) if name != "none")

    @property
    def allowed_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        return networks(self.webhook_allowed_networks or "")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]

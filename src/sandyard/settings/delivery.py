"""Settings of the delivery of events to sinks."""

from ipaddress import IPv4Network, IPv6Network

from pydantic import Field, field_validator

from sandyard.kit.changes.event_kinds import UnknownEventKindError, require_known_kinds
from sandyard.kit.patterns import pattern
from sandyard.settings.fields import Hours, Networks, Seconds, Section, networks, words

SINKS = ("webhooks", "sns", "sqs", "s3")
_KINDS = pattern(
    r"^(\*|[a-z_.]+\*?)(,(\*|[a-z_.]+\*?))*$", "must be kinds such as lease.*,pool.low"
)


class DeliverySettings(Section):
    """Sinks of events."""

    event_sinks: str = "webhooks"
    """Sinks for events, comma-separated: `webhooks`, `sns`, `sqs`, `s3`; or `none`."""
    event_sqs_queue_url: str | None = Field(
        None, pattern=pattern(r"^https?://\S+$", "must be the URL of a queue")
    )
    """Queue of the sink `sqs`."""
    event_sqs_kinds: str | None = Field(None, pattern=_KINDS)
    """Kinds of events to send to it. Unset: all."""
    event_sns_topic_arn: str | None = Field(
        None, pattern=pattern(r"^arn:aws[a-z-]*:sns:\S+$", "must be the ARN of a topic")
    )
    """Topic of the sink `sns`."""
    event_sns_kinds: str | None = Field(None, pattern=_KINDS)
    """Kinds of events to send to it. Unset: all."""
    event_s3_url: str | None = Field(
        None,
        pattern=pattern(r"^s3://[a-z0-9.-]+(/\S*)?$", "must be s3://BUCKET or s3://BUCKET/PREFIX"),
    )
    """Bucket and prefix of the sink `s3`."""
    event_s3_kinds: str | None = Field(None, pattern=_KINDS)
    """Kinds of events to send to it. Unset: all."""
    event_retry_base_sec: Seconds = 1
    """Maximum delay after an event's first failed delivery; it doubles each time."""
    event_retry_max_sec: Seconds = 300
    """Maximum delay between two deliveries."""
    event_retry_hours: Hours = 24
    """How long a webhook may fail before it is disabled."""
    webhook_timeout_sec: Seconds = 15
    """Timeout for a webhook's response."""
    webhook_allowed_networks: Networks | None = None
    """Private networks that webhooks may use, comma-separated, such as `10.0.0.0/8`. Public
    addresses are always allowed."""

    @field_validator("event_sinks")
    @classmethod
    def _known_sinks(cls, text: str) -> str:
        names = words(text)
        if not set(names) <= {*SINKS, "none"} or ("none" in names and len(names) > 1):
            raise ValueError(f"must be some of {', '.join(SINKS)}, comma-separated, or none")
        return text

    @field_validator("event_sqs_kinds", "event_sns_kinds", "event_s3_kinds")
    @classmethod
    def _known_kinds(cls, text: str | None) -> str | None:
        try:
            require_known_kinds([] if text is None else text.split(","))
        except UnknownEventKindError as error:
            raise ValueError(error.message) from error
        return text

    @property
    def sinks(self) -> tuple[str, ...]:
        return tuple(name for name in words(self.event_sinks) if name != "none")

    @property
    def allowed_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        return networks(self.webhook_allowed_networks or "")

"""What can go wrong with a webhook or a delivery."""

from sandyard.kit.errors import ConflictError, InvalidError, NotFoundError, UnavailableError


class WebhookNotFoundError(NotFoundError):
    """There is no such webhook. `GET …/admin/webhooks` lists them."""


class EventNotFoundError(NotFoundError):
    """There is no such event, or it was removed. Use an `event_id` from a listing."""


class WebhookAddressError(InvalidError):
    """The webhook's host has a private address, or this server's own. Use another public address,
    or add its network to WEBHOOK_ALLOWED_NETWORKS."""

    code = "WEBHOOK_ADDRESS_REFUSED"


class WebhooksOffError(ConflictError):
    """Webhooks are off on this server. Add `webhooks` to EVENT_SINKS."""


class WebhookBusyError(UnavailableError):
    """Others are changing the webhook at the same time. Try again."""


class SinkError(UnavailableError):
    """A sink did not accept an event. The event is sent again later."""

    code = "SINK_UNAVAILABLE"

"""The storage cost of a template's archives for its owner, without any I/O."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from sandyard.kit.changes.transitions import Cause, Transition, changed
from sandyard.platform.templates.model import Template
from sandyard.platform.usage.model import Consumer, PriceList, record_storage, storage_usage

Transitions = tuple[Transition[Any], ...]


def count_archives(
    template: Template, *, until: datetime, usage_id: str, prices: PriceList, cause: Cause
) -> Transitions | None:
    """Their storage up to then, or until the template was deleted, becomes a usage of the sandbox
    that made the last of them; None if it is already counted."""
    since, account_id = template.storage_counted_until, template.owner_account_id
    if since is None or account_id is None or template.archived_by is None:
        return None
    deleted_at = template.deleted_at
    end = until if deleted_at is None else min(until, deleted_at)
    usage = storage_usage(
        Consumer(template.archived_by, account_id, None),
        usage_id=usage_id,
        size_bytes=template.archive_bytes or 0,
        prices=prices,
        since=since,
        until=end,
    )
    is_over = deleted_at is not None and end >= deleted_at
    if usage is None and not is_over:
        return None
    counted = replace(template, storage_counted_until=None if is_over else end)
    change = changed(template, counted, "template.storage_counted", cause)
    return (change,) if usage is None else (change, record_storage(usage, cause=cause))

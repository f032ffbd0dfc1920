"""A data dir that is a copy of another one: nothing outside is changed from it."""

from dataclasses import replace
from pathlib import Path

from sandyard.settings import Settings
from sandyard.settings.platform import READ_ONLY

MARKER = "copy"
"""Remove this file to serve the data dir as the original."""
OUTWARD_JOBS = frozenset({"sync", "cleanup", "pool", "probe", "deliver"})


def is_copy(data_dir: Path) -> bool:
    return (data_dir / MARKER).exists()


def within(settings: Settings, data_dir: Path) -> Settings:
    """The settings; for a copy without the provider, E2B, the sinks of events and the mail server,
    which belong to the original, and with its store of files read-only."""
    if not is_copy(data_dir):
        return settings
    store = settings.sandboxes.snapshot_store
    sandboxes = {"sandbox_runtime": "local", "snapshot_store": store and f"{READ_ONLY}{store}"}
    return replace(
        settings,
        provider=settings.provider.model_copy(update={"csp_base_url": None}),
        delivery=settings.delivery.model_copy(update={"event_sinks": "none"}),
        platform=settings.platform.model_copy(update={"smtp_url": None}),
        sandboxes=settings.sandboxes.model_copy(update=sandboxes),
        previews=settings.previews.model_copy(update={"preview_provider": "local"}),
        e2b=settings.e2b.model_copy(update={"e2b_api_key": None}),
    )

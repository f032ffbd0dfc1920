"""Settings are read from their variables, and bad values are refused."""

from typing import Any

import pytest

from sandyard.settings import SettingsError, list_in_force, load_settings

VALUES: dict[str, tuple[str, Any, str]] = {
    "AUTH_LEEWAY_SEC": ("0", 0, "301"),
    "BACKOFF_MAX_MS": ("700", 700, "0"),
    "CLEANUP_PARALLEL": ("3", 3, "0"),
    "CSP_TIMEOUT_CONNECT_SEC": ("0.5", 0.5, "0"),
    "DDB_GSI2_NAME": ("ByTrack", "ByTrack", "a b"),
    "DDB_GSI3_NAME": ("ByKey", "ByKey", "a"),
    "DELETION_BACKOFF_MAX_SEC": ("60", 60, "-1"),
    "E2B_TEMPLATE": ("mine", "mine", ""),
    "ENABLE_REQUEST_ID": ("false", False, "perhaps"),
    "EVENT_RETENTION_DAYS": ("7", 7, "0"),
    "EVENT_RETRY_HOURS": ("0.5", 0.5, "0"),
    "EVENT_S3_KINDS": ("lease.*", "lease.*", "Lease!"),
    "EVENT_SNS_KINDS": ("pool.low", "pool.low", "Pool!"),
    "EVENT_SQS_KINDS": ("pool.*", "pool.*", "Pool!"),
    "GATEWAY_CONNECTIONS": ("9", 9, "0"),
    "GATEWAY_TIMEOUT_SEC": ("9", 9, "0"),
    "HOLD_HOURS": ("0.25", 0.25, "0"),
    "K_CANDIDATES": ("1000", 1000, "1001"),
    "KUBERNETES_CA_FILE": ("ca.crt", "ca.crt", ""),
    "KUBERNETES_GVISOR_CLASS": ("gvisor", "gvisor", ""),
    "KUBERNETES_IMAGES": ("node=node:22,go=golang", "node=node:22,go=golang", ""),
    "KUBERNETES_LOST_SEC": ("5", 5, "0"),
    "KUBERNETES_PRIORITY_CLASS": ("low", "low", ""),
    "KUBERNETES_ROOT_NAMESPACE": ("rooted", "rooted", "Rooted"),
    "KUBERNETES_VOLUME_CLASS": ("ssd", "ssd", ""),
    "KUBERNETES_START_TIMEOUT_SEC": ("5", 5, "0"),
    "MAX_UPLOAD_BYTES": ("1024", 1024, "0"),
    "METRICS_DAYS": ("2", 2, "0"),
    "POOL_LOOKAHEAD_MINUTES": ("0", 0, "-1"),
    "POOL_LOW_AVAILABLE": ("0", 0, "-1"),
    "POOL_NAME_PREFIX": ("lab-", "lab-", "a b"),
    "PREVIEW_MAX_BYTES": ("1024", 1024, "0"),
    "PREVIEW_MAX_FILES": ("3", 3, "0"),
    "PREVIEW_READS": ("old", "old", "both"),
    "PROBE_PARALLEL": ("2", 2, "0"),
    "PROBE_TIMEOUT_SEC": ("0.5", 0.5, "0"),
    "READINGS_RETENTION_DAYS": ("36500", 36500, "36501"),
    "SANDBOX_DEBIAN_MIRROR": ("http://mirror.example.com", "http://mirror.example.com", "mirror"),
    "SANDBOX_GIT_TIMEOUT_SEC": ("5", 5, "0"),
    "SANDBOX_LISTEN_TIMEOUT_SEC": ("5", 5, "0"),
    "SANDBOX_PROCESSES": ("64", 64, "0"),
    "SANDBOX_ROOT": ("none", "none", "always"),
    "SANDBOX_STORAGE_GB": ("0.5", 0.5, "1001"),
    "SNAPSHOT_DAYS": ("1", 1, "3651"),
    "SNAPSHOT_STORE": ("file:/mnt/share", "file:/mnt/share", "file:relative"),
    "SNAPSHOT_WARNING_HOURS": ("2", 2, "0"),
    "UPLOAD_TIMEOUT_SEC": ("5", 5, "0"),
    "VARIABLES_PER_ACCOUNT": ("9", 9, "0"),
    "WEBHOOK_TIMEOUT_SEC": ("5", 5, "0"),
}
"""A value, what it is read as, and a bad one; empty if there is none."""


@pytest.mark.parametrize("name", VALUES)
def test_a_setting_is_read_from_its_variable_and_a_bad_value_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, expected, bad = VALUES[name]
    monkeypatch.setenv(name, text)
    found = {each: (value, source) for each, value, source in list_in_force(load_settings())}
    assert found[name] == (expected, "environment")
    if bad:
        monkeypatch.setenv(name, bad)
        with pytest.raises(SettingsError, match=f"^{name}: "):
            load_settings()

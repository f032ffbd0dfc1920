"""Calls of devices, their readings and keys."""

from sandyard.entrypoints.cli.calls.row import ALL, EVENT_COLUMNS, Row, Rows

_DEVICE = "AA:BB:CC:DD:EE:FF"

device = (
    Row("list", "list_devices", "--search greenhouse", renamed={"q": "search"},
        more="The most recently seen first."),
    Row("show", "get_device", _DEVICE, columns=ALL),
    Row("rename", "rename_device", f"{_DEVICE} 'Greenhouse 2'", arguments="friendly_name"),
    Row("delete", "delete_device", _DEVICE,
        more="With all its readings. If the device registers again, it is a new one."),
    Row("latest", "get_latest_reading", _DEVICE, columns=ALL),
    Row("readings", "list_readings", f"{_DEVICE} --from 2026-11-01 --limit 100", columns=ALL),
    Row("series", "get_series", f"{_DEVICE} --metric temp_c --bucket 1h", items="series",
        columns=ALL),
    Row("sensors", "list_sensors", _DEVICE, items="sensors", columns=ALL),
    Row("gaps", "find_gaps", f"{_DEVICE} --metric temp_c", items="gaps", columns=ALL),
    Row("history", "get_device_history", _DEVICE, columns=EVENT_COLUMNS),
    Row("events", "list_telemetry_events", "--kind device.registered", columns=EVENT_COLUMNS),
)  # fmt: skip
DEVICE_COLUMNS = (
    "device=hardware_id name=friendly_name last_seen=last_seen_at firmware=firmware_version "
    "confirmation=confirmation_id*"
)
keys = Rows(
    "device key",
    (
        Row("ls", "list_device_keys"),
        Row("create", "create_device_key", "--description 'Greenhouse 2'", shown_once="api_key"),
        Row("revoke", "revoke_device_key", "key-3k9x0v7q2m5n8p1rt"),
        Row("history", "get_device_key_history", "key-3k9x0v7q2m5n8p1rt", columns=EVENT_COLUMNS),
    ),
    columns="key_id active=is_active last_used=last_used_at created_at description",
    help="Keys with which devices register and send.",
)

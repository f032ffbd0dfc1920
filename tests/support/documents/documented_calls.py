"""What the calls of the Broker, Telemetry and the process promise: credential and answers."""

from typing import Any

TRACK, ADMIN = "TrackToken", "AdminToken"
DEVICE, OPERATOR = "DeviceKey", "TelemetryToken"
METRICS = "MetricsToken"
"""Not needed where the server listens on loopback alone."""
BEARER_OF = {DEVICE: "DeviceBearer"}
"""The same credential as a bearer token, where either is taken."""
TELEMETRY = "/telemetry/v1"
ONE_DEVICE = f"{TELEMETRY}/devices/{{hardware_id}}"
SANDBOX, ADMIN_SANDBOX = "/v1/sandboxes/{sandbox_id}", "/v1/admin/sandboxes/{sandbox_id}"
ANY_CALL = {400, 413, 500}
"""What any call may answer."""
PROMISED: dict[str, tuple[str | None, set[int]]] = {
    "POST /v1/allocate": (TRACK, {200, 201, 400, 401, 409, 429, 503}),
    f"POST {SANDBOX}/mark-for-deletion": (TRACK, {200, 400, 401, 403, 404, 503}),
    "POST /v1/queue": (TRACK, {200, 201, 202, 400, 401, 429, 503}),
    "DELETE /v1/queue": (TRACK, {204, 400, 401, 404, 503}),
    f"POST {SANDBOX}/extend": (TRACK, {200, 400, 401, 403, 404, 409, 503}),
    f"POST {SANDBOX}/replace": (TRACK, {200, 400, 401, 403, 404, 409, 503}),
    f"GET {SANDBOX}": (TRACK, {200, 400, 401, 403, 404, 503}),
    "GET /v1/admin/sandboxes": (ADMIN, {200, 400, 401, 503}),
    f"GET {ADMIN_SANDBOX}": (ADMIN, {200, 401, 404, 503}),
    "GET /v1/admin/stats": (ADMIN, {200, 401, 503}),
    "POST /v1/admin/sync": (ADMIN, {200, 400, 401, 409, 503}),
    "POST /v1/admin/cleanup": (ADMIN, {200, 401, 409, 503}),
    "POST /v1/admin/bulk-delete": (ADMIN, {200, 400, 401, 503}),
    "POST /v1/admin/auto-delete-stale": (ADMIN, {200, 400, 401, 503}),
    "POST /v1/admin/expire": (ADMIN, {200, 401, 503}),
    "POST /v1/admin/bulk-quarantine": (ADMIN, {200, 400, 401, 503}),
    "POST /v1/admin/bulk-hold": (ADMIN, {200, 400, 401, 503}),
    "POST /v1/admin/bulk-restore": (ADMIN, {200, 400, 401, 503}),
    f"POST {ADMIN_SANDBOX}/extend": (ADMIN, {200, 400, 401, 404, 409, 503}),
    f"POST {ADMIN_SANDBOX}/replace": (ADMIN, {200, 400, 401, 404, 409, 503}),
    "POST /v1/release": (TRACK, {200, 400, 401, 403, 404, 503}),
    "POST /v1/admin/reservations": (ADMIN, {200, 201, 400, 401, 409, 503}),
    "GET /v1/admin/reservations": (ADMIN, {200, 400, 401, 503}),
    "GET /v1/admin/reservations/{reservation_id}": (ADMIN, {200, 401, 404, 503}),
    "DELETE /v1/admin/reservations/{reservation_id}": (ADMIN, {200, 400, 401, 404, 503}),
    f"POST {ADMIN_SANDBOX}/quarantine": (ADMIN, {200, 400, 401, 404, 409, 503}),
    f"POST {ADMIN_SANDBOX}/hold": (ADMIN, {200, 400, 401, 404, 503}),
    f"POST {ADMIN_SANDBOX}/restore": (ADMIN, {200, 400, 401, 404, 409, 503}),
    f"POST {ADMIN_SANDBOX}/release": (ADMIN, {200, 400, 401, 404, 409, 503}),
    f"POST {ADMIN_SANDBOX}/retry-deletion": (ADMIN, {200, 400, 401, 404, 409, 503}),
    f"POST {TELEMETRY}/data": (DEVICE, {200, 400, 401, 503}),
    f"POST {TELEMETRY}/register": (DEVICE, {200, 400, 401, 503}),
    f"POST {TELEMETRY}/api-keys": (OPERATOR, {201, 400, 401, 503}),
    f"GET {TELEMETRY}/api-keys": (OPERATOR, {200, 400, 401, 503}),
    f"DELETE {TELEMETRY}/api-keys/{{key_id}}": (OPERATOR, {200, 401, 404, 503}),
    f"GET {TELEMETRY}/devices": (OPERATOR, {200, 400, 401, 503}),
    f"GET {ONE_DEVICE}": (OPERATOR, {200, 400, 401, 404, 503}),
    f"PUT {ONE_DEVICE}": (OPERATOR, {200, 400, 401, 404, 503}),
    f"GET {ONE_DEVICE}/readings": (OPERATOR, {200, 400, 401, 404, 503}),
    f"GET {ONE_DEVICE}/latest": (OPERATOR, {200, 400, 401, 404, 503}),
    f"GET {ONE_DEVICE}/series": (OPERATOR, {200, 400, 401, 404, 503}),
    f"GET {ONE_DEVICE}/export": (OPERATOR, {200, 400, 401, 404, 503}),
    "GET /healthz": (None, {200}),
    "GET /readyz": (None, {200, 503}),
    "GET /metrics": (METRICS, {200, 401}),
}


def operations_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The operations of the API's document, by call."""
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }

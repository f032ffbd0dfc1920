"""The Platform's sandboxes in the terms of E2B's API, without any I/O."""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, unquote

from sandyard.e2b_api.errors import STATUSES, Statuses
from sandyard.platform.sandboxes.errors import QuotaExceededError, SandboxesLimitError
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.templates.model import DEFAULT_TAG, Template

ENVD_VERSION = "0.6.4"
"""The version of E2B's agent that offers the same inside sandboxes as this server."""
CLIENT_ID = "sandyard"
INTERPRETER_PORT = 49999
DEFAULT_TIMEOUT_SEC = 15
DEFAULT_TIMEOUT_V2_SEC = 300
MAX_TIMEOUT_SEC = 7 * 86_400

PLATFORM_STATUSES: Statuses = {
    **STATUSES,
    QuotaExceededError: 429,
    SandboxesLimitError: 429,
}
_ID = re.compile(r"(sbx-[a-z0-9]{12,17})(?:-[a-z0-9]+)?")
_MEBIBYTES_PER_GB = 1024


def sandbox_id_of(text: str) -> str | None:
    """The id of a sandbox; SDKs of 2025 append a client's id to it."""
    found = _ID.fullmatch(text)
    return found[1] if found else None


def is_gone(sandbox: Sandbox, now: datetime) -> bool:
    """Whether E2B would no longer know it: it was killed, or timed out without being kept, even if
    that is not recorded yet."""
    if sandbox.status is Status.RECYCLED:
        return True
    is_over = sandbox.status is Status.TIMEOUT or _is_overdue(sandbox, now)
    return is_over and sandbox.recycle_on_timeout


def is_running(sandbox: Sandbox, now: datetime) -> bool:
    return sandbox.is_active and not _is_overdue(sandbox, now)


def _is_overdue(sandbox: Sandbox, now: datetime) -> bool:
    end = sandbox.timeout_at
    return sandbox.status is Status.RUNNING and end is not None and end <= now


def state_of(sandbox: Sandbox, now: datetime) -> str:
    return "running" if is_running(sandbox, now) else "paused"


def end_of(sandbox: Sandbox) -> datetime:
    planned = (sandbox.started_at or sandbox.created_at) + timedelta(
        seconds=sandbox.max_running_seconds
    )
    end = sandbox.timeout_at if sandbox.is_active else sandbox.stopped_at
    return end or planned


def clamped_timeout(seconds: int) -> int:
    return min(max(1, seconds), MAX_TIMEOUT_SEC)


@dataclass(frozen=True, slots=True)
class SandboxView:
    """A sandbox with its template's name and disk size."""

    sandbox: Sandbox
    alias: str | None
    disk_mb: int

    def listed(self, now: datetime) -> dict[str, Any]:
        sandbox = self.sandbox
        body = {
            "templateID": sandbox.template_id,
            "sandboxID": sandbox.sandbox_id,
            "clientID": CLIENT_ID,
            "startedAt": iso(sandbox.started_at or sandbox.created_at),
            "endAt": iso(end_of(sandbox)),
            "cpuCount": max(1, int(sandbox.cpu_spec)),
            "memoryMB": int(sandbox.memory_spec * _MEBIBYTES_PER_GB),
            "diskSizeMB": self.disk_mb,
            "metadata": dict(sandbox.metadata or {}),
            "state": state_of(sandbox, now),
            "envdVersion": ENVD_VERSION,
        }
        return body if self.alias is None else body | {"alias": self.alias}

    def detailed(
        self, now: datetime, *, domain: str, token: str | None, network: Mapping[str, Any]
    ) -> dict[str, Any]:
        """`pauseMode` says whether its processes survived its pause."""
        sandbox = self.sandbox
        on_timeout = "kill" if sandbox.recycle_on_timeout else "pause"
        body = self.listed(now) | {
            "domain": domain,
            "allowInternetAccess": sandbox.network == "internet",
            "network": network,
            "volumeMounts": [
                {"name": each["name"], "path": each["path"]} for each in sandbox.volumes or ()
            ],
            "lifecycle": {"autoResume": sandbox.wake_on_request, "onTimeout": on_timeout},
        }
        if body["state"] == "paused":
            body["pauseMode"] = "full" if sandbox.snapshot_has_memory else "filesystem"
        return body if token is None else body | {"envdAccessToken": token}


def iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def template_body(template: Template, disk_mb: int) -> dict[str, Any]:
    created, updated = iso(template.created_at), iso(template.updated_at)
    return {
        "templateID": template.template_id,
        "buildID": build_id_of(template),
        "cpuCount": max(1, int(template.min_cpu_required)),
        "memoryMB": int(template.min_memory_required * _MEBIBYTES_PER_GB),
        "diskSizeMB": disk_mb,
        "public": template.is_public or template.is_official,
        "aliases": [template.name],
        "names": [template.name],
        "createdAt": created,
        "updatedAt": updated,
        "createdBy": None,
        "lastSpawnedAt": None,
        "spawnCount": 0,
        "buildCount": 1,
        "envdVersion": ENVD_VERSION,
        "buildStatus": "ready",
    }


def build_id_of(template: Template) -> str:
    """The default build's id; SDKs parse it as a UUID, even for a template that was never built."""
    archives = template.archives or {}
    given = archives.get(DEFAULT_TAG) or next(iter(archives.values()), None)
    return given or str(uuid.uuid5(uuid.NAMESPACE_URL, template.template_id))


def tags_body(template: Template) -> list[dict[str, str]]:
    archives = template.archives or {DEFAULT_TAG: build_id_of(template)}
    at = iso(template.updated_at)
    return [{"tag": tag, "buildID": each, "createdAt": at} for tag, each in archives.items()]


def metadata_of(query: str) -> Mapping[str, str]:
    """The metadata filter of a list; SDKs quote names and values twice."""
    pairs = parse_qsl(query, keep_blank_values=True)
    return {unquote(name): unquote(value) for name, value in pairs}

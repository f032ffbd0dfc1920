"""Tools: previews of projects, and leases of the Broker's sandboxes."""

import base64
import json
from typing import Annotated, Any

from mcp.server.mcpserver import Image
from pydantic import Field

from sandyard.kit.patterns import pattern
from sandyard.mcp.api import Calls, segment
from sandyard.mcp.sandboxes import Key

ProjectId = Annotated[str, Field(description="One of the account's projects")]
Track = Annotated[str, Field(description="The lab's track id, 1 to 128 of A-Za-z0-9._:-")]


async def write_project_files(
    calls: Calls,
    project_id: ProjectId,
    files: Annotated[dict[str, str], Field(description="Text by path in the project")],
    deleted: Annotated[list[str] | None, Field(description="Paths to delete")] = None,
) -> dict[str, Any]:
    """Change files of a project, all or none. preview_sync then shows them."""
    changes = [{"path": path, "content": text} for path, text in files.items()]
    path = f"platform/projects/{segment(project_id)}/files"
    body = {"files": changes, "deleted": deleted or []}
    changed: dict[str, Any] = await calls.json("PUT", path, body=body)
    return changed


async def preview_sync(calls: Calls, project_id: ProjectId) -> dict[str, Any]:
    """Show the project's files in its preview: the running one, or a new one."""
    path = f"platform/projects/{segment(project_id)}/sync"
    shown: dict[str, Any] = await calls.json("POST", path)
    return shown


async def preview_status(calls: Calls, project_id: ProjectId) -> dict[str, Any]:
    """Whether the project's preview runs, its address, and what to do next."""
    path = f"platform/projects/{segment(project_id)}/sandbox/status"
    found: dict[str, Any] = await calls.json("GET", path)
    return found


async def preview_look(
    calls: Calls,
    project_id: ProjectId,
    path: Annotated[str, Field(pattern=pattern("^/", "must begin with /"))] = "/",
) -> list[Image | str]:
    """See the project's running preview as its user does: a screenshot; and as JSON its title,
    console messages and failed requests."""
    call = f"platform/projects/{segment(project_id)}/sandbox/look"
    seen: dict[str, Any] = await calls.json("POST", call, body={"path": path})
    screenshot = seen.pop("screenshot")
    shown = [Image(data=base64.b64decode(screenshot), format="png")] if screenshot else []
    return [*shown, json.dumps(seen)]


async def lease_sandbox(calls: Calls, track: Track, key: Key) -> dict[str, Any]:
    """Lease a cloud sandbox of the pool for a lab's track. The same key returns the same lease."""
    headers = {"X-Track-ID": track, "Idempotency-Key": key}
    leased: dict[str, Any] = await calls.json("POST", "broker/allocate", headers=headers)
    return leased


async def extend_lease(
    calls: Calls,
    track: Track,
    sandbox_id: str,
    minutes: Annotated[int, Field(ge=1, description="How many more")],
    key: Key,
) -> dict[str, Any]:
    """Extend a lease. The same key extends it once."""
    headers = {"X-Track-ID": track, "Idempotency-Key": key}
    path = f"broker/sandboxes/{segment(sandbox_id)}/extend"
    body = {"minutes": minutes}
    extended: dict[str, Any] = await calls.json("POST", path, body=body, headers=headers)
    return extended


async def release_lease(calls: Calls, track: Track, key: Key) -> dict[str, Any]:
    """End the lease of this track and key; its sandbox is deleted."""
    headers = {"X-Track-ID": track, "Idempotency-Key": key}
    released: dict[str, Any] = await calls.json("POST", "broker/release", headers=headers)
    return released


TOOLS = (
    *(write_project_files, preview_sync, preview_status, preview_look),
    *(lease_sandbox, extend_lease, release_lease),
)

"""Sandboxes for the tests, through the Platform's API."""

from typing import Any

import httpx

from sandyard.kit.clock import utc_time
from sandyard.kit.ids import resource_id
from sandyard.platform.tables import templates
from tests.platforms import Caller, PlatformApi


async def add_template(
    api: PlatformApi, repository_url: str = "builtin:static", **changes: Any
) -> str:
    """An official template; its id."""
    now = utc_time(api.clock.now())
    row = {
        "template_id": resource_id("tpl"),
        "name": f"template {resource_id('tpl')}",
        "category": "web",
        "language": "html",
        "min_cpu_required": 1.0,
        "min_memory_required": 0.5,
        "is_official": changes.get("owner_account_id") is None,
        "is_public": False,
        "repository_url": repository_url,
        "created_at": now,
        "updated_at": now,
    } | changes
    statement = templates.insert().values(row)
    await api.part.database.write(lambda connection: connection.execute(statement))
    return str(row["template_id"])


async def add_sandbox(api: PlatformApi, caller: Caller, **changes: Any) -> dict[str, Any]:
    """A sandbox of a template of its own, not yet started."""
    template_id = changes.pop("template_id", None) or await add_template(api)
    body = {
        "name": f"box-{resource_id('sbx')[-6:]}",
        "template_id": template_id,
        "cpu_spec": 1,
        "memory_spec": 0.5,
    } | changes
    made: dict[str, Any] = await api.post("/sandboxes", caller, body)
    return made


async def act(
    api: PlatformApi, caller: Caller, sandbox: dict[str, Any], action: str
) -> dict[str, Any]:
    answer: dict[str, Any] = await api.post(f"/sandboxes/{sandbox['sandbox_id']}/{action}", caller)
    return answer


async def look(api: PlatformApi, caller: Caller, sandbox: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = await api.get(f"/sandboxes/{sandbox['sandbox_id']}", caller)
    return answer


async def page_at(url: str, path: str = "/") -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.get(url + path, timeout=10)

"""Sandboxes for the tests, through the Platform's API."""

from typing import Any

import httpx

from sandyard.kit.changes.transitions import Cause, created
from sandyard.kit.ids import resource_id
from sandyard.platform.events.entities import platform_transitions
from sandyard.platform.templates.model import Template
from tests.support.platform.in_process import Caller, PlatformApi


async def add_template(
    api: PlatformApi, repository_url: str = "builtin:static", **changes: Any
) -> str:
    """An official template; its id."""
    cause = Cause.by("operator", api.clock)
    fields: dict[str, Any] = {
        "template_id": resource_id("tpl"),
        "name": f"template {resource_id('tpl')}",
        "description": None,
        "category": "web",
        "language": "html",
        "min_cpu_required": 1.0,
        "min_memory_required": 0.5,
        "is_official": changes.get("owner_account_id") is None,
        "is_public": False,
        "owner_account_id": None,
        "repository_url": repository_url,
        "tags": None,
        "created_at": cause.at,
        "updated_at": cause.at,
    }
    made = created(Template(**fields | changes), "template.created", cause)
    assert await platform_transitions(api.part.database).apply(made)
    return made.result.template_id


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


async def page_of(
    api: PlatformApi, caller: Caller, running: dict[str, Any], path: str = "/"
) -> httpx.Response:
    """What its owner sees of it through the gateway."""
    token = (await api.post(f"/sandboxes/{running['sandbox_id']}/tokens", caller, {}))["token"]
    url = f"http://8080-{running['sandbox_id']}.localhost{path}"
    return await api.client.get(url, headers={"X-Access-Token": token}, timeout=10)

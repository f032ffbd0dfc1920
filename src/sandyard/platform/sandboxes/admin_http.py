"""Calls of admins about any account's sandboxes."""

from typing import Annotated

from fastapi import APIRouter, Body, Request

from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, admin_routes
from sandyard.platform.sandboxes.http import SandboxId, priced_answer
from sandyard.platform.sandboxes.schemas import EndBody, SandboxAnswer
from sandyard.platform.sandboxes.service import Sandboxes


def create_admin_sandboxes_router(
    sandboxes: Sandboxes, guard: AccessGuard, *, prefix: str
) -> APIRouter:
    routes = admin_routes(guard, prefix=f"{prefix}/admin/sandboxes", tag="admins")

    @routes.post("/{sandbox_id}/end", "End any sandbox", 404, 409)
    async def end_sandbox(
        request: Request, sandbox_id: SandboxId, body: Annotated[EndBody, Body()], admin: Caller
    ) -> SandboxAnswer:
        """Its owner is notified, with the reason. On the node that runs it, it is stopped and its
        files are kept. If its node is gone for good, it ends as of its last heartbeat, frees its
        quota, and can be started on another node without the files of the old one. While its node
        is alive, another node returns 503 `SANDBOX_ELSEWHERE`: call the server there."""
        request.state.log |= {"sandbox_id": sandbox_id, "action": "end"}
        ended = await sandboxes.end_for_admin(sandbox_id, reason=body.reason, by=admin)
        return await priced_answer(sandboxes, ended)

    return routes.router

"""The call for the ports that programs in a sandbox listen on."""

from collections.abc import Callable

from fastapi import APIRouter
from pydantic import BaseModel, Field

from sandyard.kit.http.schemas import Documented, eg, example
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, inside_routes
from sandyard.platform.sandboxes.http import SandboxId
from sandyard.platform.sessions.service import Sessions

UrlOf = Callable[[str, int], str]
"""The URL of a sandbox's port."""

_PORT = {"port": 8080, "url": "http://8080-sbx-1m4p7s0v3y6b9e2hk.localhost:8080/"}


class PortAnswer(BaseModel):
    model_config = example(**_PORT)

    port: int
    url: str = Field(description="Private unless the sandbox is public; access needs a token")


class PortList(Documented):
    ports: list[PortAnswer] = eg([_PORT], description="Sorted by number")


def create_ports_router(sessions: Sessions, guard: AccessGuard, *, url_of: UrlOf) -> APIRouter:
    routes = inside_routes(guard, "/sandboxes/{sandbox_id}", tag="sandboxes")

    @routes.get("/ports", "List the ports of a sandbox", 404, 409)
    async def list_ports(caller: Caller, sandbox_id: SandboxId) -> PortList:
        """The TCP ports that programs listen on, and the address of each."""
        session = await sessions.open(sandbox_id, account_id=caller.account_id)
        found = sorted(set(await session.ports.listening()))
        return PortList(
            ports=[PortAnswer(port=each, url=url_of(sandbox_id, each)) for each in found]
        )

    return routes.router

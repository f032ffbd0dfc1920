"""Calls about SSH keys, and where to log in with them."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path
from pydantic import Field, StrictStr

from sandyard.kit.http.schemas import Documented, PageAnswer, Paging, eg
from sandyard.kit.patterns import NO_NUL
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, account_routes
from sandyard.platform.entities.model import Listing
from sandyard.platform.http.fields import Answer, Name, RequestBody
from sandyard.platform.ssh_keys.model import AnySshKey, SshAddress
from sandyard.platform.ssh_keys.service import SshKeys

_PUBLIC_KEY = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGbPhiQgg7u7hS1v6ZrM1mR3W9aq0zJjQ8m4Q7b2sX0d ann@pc"
)


class NewSshKeyBody(RequestBody):
    name: Name = eg("laptop")
    public_key: Annotated[StrictStr, Field(max_length=16_384, pattern=NO_NUL)] = eg(
        _PUBLIC_KEY, description="The line in a file such as `id_ed25519.pub`"
    )


class SshKeyAnswer(Answer):
    ssh_key_id: str = eg("ssk-7r2d9f0h3j5k8l1zq")
    name: str = eg("laptop")
    public_key: str = eg(_PUBLIC_KEY.rpartition(" ")[0])
    fingerprint: str = eg("SHA256:Qh1G4c3xQdZb8o0M1y0gGtdkqk4vGq5cY1m0H2n8s7E")
    api_key_id: str | None = Field(
        description="The API key that added it: it is valid as long as that is"
    )
    created_at: datetime = eg("2026-10-30T09:00:00Z")


class SshKeyPage(PageAnswer):
    ssh_keys: list[SshKeyAnswer]
    next_cursor: str | None


class SshAddressAnswer(Documented):
    host: str = eg("sandyard.example.com")
    port: int | None = eg(2222, description="Null if this server has no SSH")
    host_keys: list[str] = eg(
        [_PUBLIC_KEY.rpartition(" ")[0]],
        description="Those in use and those that follow, for `known_hosts`",
    )

    @classmethod
    def of(cls, address: SshAddress, host_keys: Sequence[str]) -> Self:
        return cls(host=address.host, port=address.port, host_keys=list(host_keys))


def create_ssh_keys_router(
    keys: SshKeys,
    address: SshAddress,
    host_keys: Callable[[], Awaitable[Sequence[str]]],
    guard: AccessGuard,
) -> APIRouter:
    routes = account_routes(guard, "/ssh-keys", tag="ssh keys")

    @routes.post("", "Add an SSH key", 409, status_code=201)
    async def add_ssh_key(body: NewSshKeyBody, caller: Caller) -> SshKeyAnswer:
        """Whoever has its private half can log in to all sandboxes of the account."""
        key = await keys.add(caller, name=body.name, public_key=body.public_key)
        return SshKeyAnswer.of(key)

    @routes.get("", "List your SSH keys")
    async def list_ssh_keys(caller: Caller, paging: Paging) -> SshKeyPage:
        """Newest first."""
        page = await keys.list(caller.account_id, Listing(AnySshKey(), "-created_at", **paging))
        return SshKeyPage.of(page, SshKeyAnswer.of)

    @routes.get("/address", "Get the address of the SSH server")
    async def get_ssh_address(_caller: Caller) -> SshAddressAnswer:
        """The user is the id of a sandbox."""
        return SshAddressAnswer.of(address, await host_keys() if address.port else ())

    @routes.delete("/{ssh_key_id}", "Remove an SSH key", 404, status_code=204)
    async def remove_ssh_key(
        ssh_key_id: Annotated[str, Path(description="The id from the response that added it")],
        caller: Caller,
    ) -> None:
        """Its sessions end within five seconds."""
        await keys.remove(caller, ssh_key_id)

    return routes.router

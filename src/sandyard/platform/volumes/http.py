"""Calls about volumes."""

from datetime import datetime
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field, StrictBool, StrictStr

from sandyard.kit.http.schemas import PageAnswer, Paging, eg
from sandyard.kit.sizes import GIGABYTE
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.principal import Principal
from sandyard.platform.access.routes import Caller, account_routes
from sandyard.platform.entities.model import Listing
from sandyard.platform.http.fields import ID, Answer, OfProject, RequestBody
from sandyard.platform.sandboxes.schemas import VolumeName
from sandyard.platform.volumes.model import VOLUME_NAME, NewVolume, Volume, VolumeFilter, VolumeUse
from sandyard.platform.volumes.service import Volumes

_VolumeId = Annotated[str, Path(description="The id from the response that created it")]
_Id = Annotated[StrictStr, Field(min_length=1, max_length=25, pattern=ID)]
_Size = Annotated[
    float,
    Field(ge=0.01, le=16_384, strict=True, description="GB that it may store, and is billed for"),
]


class NewVolumeBody(RequestBody):
    name: VolumeName = eg("models")
    size_gb: _Size = eg(10, 1.0)
    project_id: _Id | None = Field(
        None, description="The project whose sandboxes alone may mount it; default: any of yours"
    )
    copy_of: _Id | None = Field(
        None,
        description="The id of another volume of yours: this one gets its size and its files. No "
        "sandbox may have that one mounted to write",
    )
    read_only: StrictBool = Field(
        False, description="With `copy_of`: a snapshot, which never changes"
    )


class VolumeSizeBody(RequestBody):
    size_gb: _Size = eg(20)


class VolumeHolder(BaseModel):
    sandbox_id: str
    read_only: bool


class VolumeAnswer(Answer):
    volume_id: str = eg("vol-7c2e9g4j1m6p3s8vx")
    name: str = eg("models")
    project_id: str | None
    size_gb: float = eg(10)
    read_only: bool = eg(False, description="Whether it can only be read")
    copied_from: str | None = Field(description="The id of the volume that it is a copy of")
    status: Literal["available", "mounted"] = eg("mounted")
    mounted_by: list[VolumeHolder] = eg(
        [{"sandbox_id": "sbx-1m4p7s0v3y6b9e2hk", "read_only": False}],
        description="Sandboxes that start or run with it",
    )
    created_at: datetime = eg("2026-10-30T09:00:00Z")
    updated_at: datetime = eg("2026-10-30T09:00:00Z")

    @classmethod
    def of(cls, volume: Volume, use: VolumeUse | None = None) -> Self:
        holders = () if use is None else use.holders_of(volume)
        return super().of(
            volume,
            size_gb=volume.size_bytes / GIGABYTE,
            read_only=volume.is_read_only,
            status="mounted" if holders else "available",
            mounted_by=[
                {"sandbox_id": each.sandbox_id, "read_only": each.is_read_only} for each in holders
            ],
        )


class VolumePage(PageAnswer):
    volumes: list[VolumeAnswer]
    next_cursor: str | None


def create_volumes_router(volumes: Volumes, guard: AccessGuard) -> APIRouter:
    routes = account_routes(guard, "/volumes", tag="volumes")

    async def answer(caller: Principal, volume: Volume) -> VolumeAnswer:
        return VolumeAnswer.of(volume, await volumes.use_of(caller.account_id, volume))

    @routes.make("", "Create a volume", 404, 409, 501, status_code=201)
    async def create_volume(body: NewVolumeBody, caller: Caller) -> VolumeAnswer:
        """Empty, or a copy of another. Sandboxes mount it by its name."""
        new = NewVolume(
            body.name,
            int(body.size_gb * GIGABYTE),
            body.project_id,
            body.copy_of,
            is_read_only=body.read_only,
        )
        return VolumeAnswer.of(await volumes.create(caller, new))

    @routes.get("", "List your volumes")
    async def list_volumes(
        caller: Caller,
        paging: Paging,
        project_id: OfProject = None,
        name: Annotated[
            str | None, Query(max_length=64, pattern=VOLUME_NAME, description="Exact match")
        ] = None,
    ) -> VolumePage:
        """Newest first, with the sandboxes that have them mounted."""
        listing = Listing(VolumeFilter(project_id, name), "-created_at", **paging)
        page = await volumes.list(caller.account_id, listing)
        use = await volumes.use_of(caller.account_id, *page.items)
        return VolumePage.of(page, lambda each: VolumeAnswer.of(each, use))

    @routes.get("/{volume_id}", "Get a volume", 404)
    async def get_volume(volume_id: _VolumeId, caller: Caller) -> VolumeAnswer:
        """One of your volumes."""
        return await answer(caller, await volumes.get(caller.account_id, volume_id))

    @routes.patch("/{volume_id}", "Resize a volume", 404, 409, 501)
    async def resize_volume(
        volume_id: _VolumeId, body: VolumeSizeBody, caller: Caller
    ) -> VolumeAnswer:
        """Refused while a sandbox has it mounted, and below what it stores."""
        size_bytes = int(body.size_gb * GIGABYTE)
        return VolumeAnswer.of(await volumes.resize(caller, volume_id, size_bytes))

    @routes.delete("/{volume_id}", "Delete a volume", 404, 409, status_code=204)
    async def delete_volume(volume_id: _VolumeId, caller: Caller) -> None:
        """With its files. Refused while a sandbox has it mounted."""
        await volumes.delete(caller, volume_id)

    return routes.router

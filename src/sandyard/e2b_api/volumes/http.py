"""The calls about volumes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sandyard.e2b_api.control import MOST_LISTED, Body, Endpoint, body_of
from sandyard.e2b_api.envd.connect import json_response
from sandyard.e2b_api.sandboxes.schemas import VolumeName
from sandyard.e2b_api.volumes.contents import VolumeTokens
from sandyard.platform.access.principal import Principal, Scope
from sandyard.platform.entities.model import Listing
from sandyard.platform.volumes.model import NewVolume, Volume, VolumeFilter
from sandyard.platform.volumes.service import Volumes


class NewVolumeBody(Body):
    name: VolumeName


@dataclass(frozen=True, slots=True)
class VolumeCalls:
    volumes: Volumes
    size_bytes: int
    """Of each: E2B's API names none."""
    tokens: VolumeTokens

    def endpoints(self) -> Sequence[Endpoint]:
        one = "/volumes/{volume}"
        return (
            Endpoint("POST", "/volumes", self._create, Scope.RUN, makes=True),
            Endpoint("GET", "/volumes", self._list, Scope.READ),
            Endpoint("GET", one, self._get, Scope.READ),
            Endpoint("DELETE", one, self._delete, Scope.RUN),
        )

    async def _create(self, request: Request, by: Principal) -> Response:
        body = await body_of(request, NewVolumeBody)
        made = await self.volumes.create(by, NewVolume(body.name, self.size_bytes))
        return json_response(self._with_token(made, by), status=201)

    async def _list(self, _request: Request, by: Principal) -> Response:
        found: list[Volume] = []
        cursor: str | None = ""
        while cursor is not None:
            wanted = Listing(VolumeFilter(), "-created_at", MOST_LISTED, cursor or None)
            page = await self.volumes.list(by.account_id, wanted)
            found += page.items
            cursor = page.next_cursor
        return json_response([_body(each) for each in found])

    async def _get(self, request: Request, by: Principal) -> Response:
        volume_id = request.path_params["volume"]
        return json_response(self._with_token(await self.volumes.get(by.account_id, volume_id), by))

    async def _delete(self, request: Request, by: Principal) -> None:
        await self.volumes.delete(by, request.path_params["volume"])

    def _with_token(self, volume: Volume, by: Principal) -> Mapping[str, Any]:
        return {**_body(volume), "token": self.tokens.issue(volume.volume_id, by)}


def _body(volume: Volume) -> Mapping[str, Any]:
    return {"volumeID": volume.volume_id, "name": volume.name}

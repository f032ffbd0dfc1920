"""The calls about what a volume contains, with the volume's own token."""

import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sandyard.e2b_api.control import Body, Query, body_of, query_of
from sandyard.e2b_api.envd.connect import json_response
from sandyard.e2b_api.envd.files import rejoined
from sandyard.e2b_api.errors import AccessTokenMissingError
from sandyard.e2b_api.model import iso
from sandyard.e2b_api.tokens import Holder, SandboxTokens, key_id_of
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.http.bodies import limited
from sandyard.kit.http.held_streams import HeldStream
from sandyard.platform.access.credentials import CredentialLookup
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.principal import Principal, Scope
from sandyard.platform.volumes.contents import VolumeContents
from sandyard.runtime.errors import FileRefusedError
from sandyard.runtime.sessions.model import Command, FileInfo, Output, Process
from sandyard.runtime.sessions.ports import Session

_BEARER = "bearer "
_MOST_ID = 65_533
_LONGEST = timedelta(hours=1)
"""How long one call may take with a login's token."""
_KINDS = {"file": "file", "folder": "directory", "link": "symlink"}


class VolumeTokens:
    """Each is issued for a volume to the credential that asked for it, and ends with that."""

    def __init__(self, tokens: SandboxTokens, credentials: CredentialLookup, clock: Clock) -> None:
        self._tokens = tokens
        self._credentials = credentials
        self._clock = clock

    def issue(self, volume_id: str, by: Principal) -> str:
        holder = Holder(volume_id, 0, by.account_id, by.token_version, by.key_id)
        return f"{by.account_id}/{self._tokens.issue(holder, at=self._clock.now())}"

    async def principal(self, request: Request) -> Principal:
        """Raises AccessTokenMissingError."""
        sent = request.headers.get("authorization", "")
        account_id, _, token = sent[len(_BEARER) :].partition("/")
        found = await self._holder(account_id, key_id_of(token))
        if found is None or not sent.lower().startswith(_BEARER):
            raise AccessTokenMissingError
        volume_id = request.path_params["volume"]
        holder = Holder(volume_id, 0, account_id, found.token_version, found.key_id)
        if not self._tokens.opens(token, holder, at=self._clock.now()):
            raise AccessTokenMissingError
        return found

    async def _holder(self, account_id: str, key_id: str | None) -> Principal | None:
        if key_id is None:
            owner = await self._credentials.find_account(account_id)
            is_valid = owner is not None and owner.is_active
            scope = Scope.ADMIN
        else:
            key = await self._credentials.find_key_by_id(key_id)
            owner = None if key is None else key.account
            is_valid = key is not None and key.holds_at(utc_time(self._clock.now()))
            scope = Scope.READ if key is None else key.scope
        if owner is None or not is_valid or owner.account_id != account_id:
            return None
        ends_at = utc_time(self._clock.now()) + _LONGEST
        return Principal(account_id, owner.role, key_id, scope, owner.token_version, ends_at)


class _Path(Query):
    path: str = Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")


class _Folder(_Path):
    depth: int = Field(default=1, ge=1, le=10)


class Attributes(Body):
    uid: int | None = Field(default=None, ge=0, le=_MOST_ID)
    gid: int | None = Field(default=None, ge=0, le=_MOST_ID)
    mode: int | None = Field(default=None, ge=0, le=0o7777)


class _New(_Path):
    uid: int | None = Field(default=None, ge=0, le=_MOST_ID)
    gid: int | None = Field(default=None, ge=0, le=_MOST_ID)
    mode: int | None = Field(default=None, ge=0, le=0o7777)
    force: bool = False


class _Place(NamedTuple):
    """A path of the volume, in a session."""

    session: Session
    top: str
    path: str

    @property
    def inside(self) -> str:
        return f"{self.top}{self.path}".rstrip("/")

    async def described(self) -> Mapping[str, Any]:
        return self.entry(await self.session.files.stat(self.inside))

    def entry(self, info: FileInfo) -> Mapping[str, Any]:
        changed_at = iso(utc_time(info.modified_at))
        return {
            "name": info.name if info.path != self.top else "/",
            "type": _KINDS.get(info.kind, "unknown"),
            "path": info.path.removeprefix(self.top) or "/",
            "size": info.size_bytes,
            "mode": info.mode,
            "uid": info.uid or 0,
            "gid": info.gid or 0,
            **dict.fromkeys(("atime", "mtime", "ctime"), changed_at),
            **({} if info.target is None else {"target": info.target}),
        }

    async def set(self, wanted: Attributes | _New) -> None:
        """Raises FileRefusedError."""
        owner = f"{'' if wanted.uid is None else wanted.uid}"
        owner += "" if wanted.gid is None else f":{wanted.gid}"
        if owner:
            await self._run("chown", owner)
        if wanted.mode is not None:
            await self._run("chmod", f"{wanted.mode:o}")

    async def _run(self, *words: str) -> None:
        command, said = Command((*words, "--", self.inside)), b""
        async for each in self.session.processes.run(command):
            if isinstance(each, Output):
                said = (said + each.data)[-500:]
            elif isinstance(each, Process) and each.exit_code:
                raise FileRefusedError(said.decode(errors="replace").strip())


@dataclass(frozen=True, slots=True)
class VolumeContentCalls:
    contents: VolumeContents
    tokens: VolumeTokens
    guard: AccessGuard
    upload_bytes: int

    def routes(self) -> Sequence[Route]:
        calls: tuple[tuple[str, str, Callable[[Request], Awaitable[Response]]], ...] = (
            ("GET", "path", self._stat),
            ("PATCH", "path", self._change),
            ("DELETE", "path", self._remove),
            ("GET", "dir", self._list),
            ("POST", "dir", self._make_folder),
            ("GET", "file", self._read),
            ("PUT", "file", self._write),
        )
        top = "/volumecontent/{volume}"
        return [Route(f"{top}/{what}", call, methods=[method]) for method, what, call in calls]

    @asynccontextmanager
    async def _open(
        self, request: Request, wanted: _Path, *, writes: bool = False
    ) -> AsyncIterator[_Place]:
        by = await self.tokens.principal(request)
        await self.guard.admit(request, by, Scope.RUN if writes else Scope.READ)
        volume_id, path = request.path_params["volume"], posixpath.normpath(f"/{wanted.path}")
        async with self.contents.open(volume_id, by=by, writes=writes) as opened:
            yield _Place(opened.session, opened.path, f"/{path.lstrip('/')}")

    async def _stat(self, request: Request) -> Response:
        async with self._open(request, query_of(request, _Path)) as place:
            return json_response(await place.described())

    async def _change(self, request: Request) -> Response:
        wanted = await body_of(request, Attributes)
        async with self._open(request, query_of(request, _Path), writes=True) as place:
            await place.described()
            await place.set(wanted)
            return json_response(await place.described())

    async def _remove(self, request: Request) -> Response:
        async with self._open(request, query_of(request, _Path), writes=True) as place:
            await place.session.files.remove(place.inside)
        return Response(status_code=204)

    async def _list(self, request: Request) -> Response:
        wanted = query_of(request, _Folder)
        async with self._open(request, wanted) as place:
            found = await place.session.files.list(place.inside, depth=wanted.depth)
            return json_response([place.entry(each) for each in found])

    async def _make_folder(self, request: Request) -> Response:
        """Without `force`, in a folder that exists."""
        wanted = query_of(request, _New)
        async with self._open(request, wanted, writes=True) as place:
            if not wanted.force:
                await place.session.files.stat(posixpath.dirname(place.inside))
            await place.session.files.make_folder(place.inside)
            await place.set(wanted)
            return json_response(await place.described(), status=201)

    async def _read(self, request: Request) -> Response:
        async with AsyncExitStack() as held:
            place = await held.enter_async_context(self._open(request, query_of(request, _Path)))
            pieces = place.session.files.read(place.inside)
            first = await anext(pieces, b"")  # earlier errors still get a status
            answer = HeldStream(rejoined(first, pieces), media_type="application/octet-stream")
            answer.held = held.pop_all()
            return answer

    async def _write(self, request: Request) -> Response:
        wanted = query_of(request, _New)
        async with self._open(request, wanted, writes=True) as place:
            content = limited(request.stream(), self.upload_bytes)
            await place.session.files.write(place.inside, content)
            await place.set(wanted)
            return json_response(await place.described(), status=201)

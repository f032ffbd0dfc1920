"""SFTP and scp, on the files of a sandbox."""

import posixpath
import shlex
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, aclosing
from dataclasses import replace
from typing import Any

import asyncssh
from asyncssh import FXF_APPEND, FXF_CREAT, FXF_EXCL, FXF_TRUNC, FXF_WRITE

from sandyard.platform.sessions.ssh.access import SandboxAccess
from sandyard.platform.sessions.ssh.transfers import (
    Reading,
    Writing,
    as_sftp,
    attributes_of,
    relative_to_workspace,
    text_of,
)
from sandyard.runtime.errors import FileMissingError, FileRefusedError
from sandyard.runtime.sessions.model import Command, FileInfo, FileSelection, Output, Process
from sandyard.runtime.sessions.ports import Files, Session

_FILE_MODE = 0o644
_MOST_LINKS = 40
_READ_BYTES = 256 * 1024
_PAGE = 1000
_ERROR_BYTES = 300


def _opened(access: SandboxAccess) -> ExitStack:
    """Raises SFTPFailure."""
    try:
        return access.opened()
    except asyncssh.ChannelOpenError as error:
        raise asyncssh.SFTPFailure(error.reason) from error


class SandboxSftp(asyncssh.SFTPServer):
    """Files are read and written from their beginning to their end, as clients do that copy them;
    what is written is there once the file is closed."""

    def __init__(
        self,
        channel: asyncssh.SSHServerChannel[bytes],
        is_gone: Callable[[], bool],
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        """`is_gone` tells whether the client has ended its side; `drain` waits until it has read
        what was written."""
        super().__init__(channel)
        self._is_gone = is_gone
        self._drain = drain
        self._access: SandboxAccess = channel.get_extra_info("access")
        self._entered: Session | None = None
        self._counted: dict[Reading | Writing, ExitStack] = {}
        """The open files."""

    def release(self) -> None:
        """With the channel."""
        for each in self._counted.values():
            each.close()

    async def exit(self) -> None:
        """With a status: without one, scp reports a failure."""
        if not self.channel.is_closing():
            self.channel.exit(0)

    async def _session(self) -> Session:
        """One for the whole channel, once the client has read the last answer."""
        await self._drain()
        await self._access.may_write.wait()
        if self._entered is None:
            self._entered = await self._access.session()
        return self._entered

    async def _files(self) -> Files:
        return (await self._session()).files

    async def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> Reading | Writing:
        with _opened(self._access) as counted:
            file = await self._open(text_of(path), pflags, attrs)
            self._counted[file] = counted.pop_all()
            return file

    async def _open(self, name: str, pflags: int, attrs: asyncssh.SFTPAttrs) -> Reading | Writing:
        with as_sftp():
            files = await self._files()
            if not pflags & (FXF_WRITE | FXF_APPEND):
                info = await self._followed(name)
                if info.kind != "file":
                    raise FileRefusedError
                return Reading(files, name)
            is_there = await self._exists(name)
            if is_there and pflags & FXF_EXCL:
                raise asyncssh.SFTPFailure("The file exists.")
            if not is_there and not pflags & FXF_CREAT:
                raise FileMissingError
            keeps = is_there and not pflags & FXF_TRUNC
            mode = None if is_there else (attrs.permissions or _FILE_MODE) & 0o777
            size = (await self._followed(name)).size_bytes if keeps else 0
            return Writing(files, name, mode, kept=size, appends=bool(pflags & FXF_APPEND))

    async def read(self, file_obj: Any, offset: int, size: int) -> bytes:
        with as_sftp():
            await self._session()
            data: bytes = await file_obj.read(offset, min(size, _READ_BYTES))
            return data

    async def write(self, file_obj: Any, offset: int, data: bytes) -> int:
        with as_sftp():
            await file_obj.write(offset, data)
        return len(data)

    async def close(self, file_obj: Any) -> None:
        """If the client has gone, what it wrote is dropped."""
        with as_sftp(), self._counted.pop(file_obj):
            await file_obj.close(is_complete=not self._is_gone())
        if isinstance(file_obj, Writing) and file_obj.attributes is not None:
            await self.setstat(file_obj.path.encode(), file_obj.attributes)

    async def lstat(self, path: bytes) -> asyncssh.SFTPAttrs:
        with as_sftp():
            return attributes_of(await (await self._files()).stat(text_of(path)))

    async def stat(self, path: bytes) -> asyncssh.SFTPAttrs:
        with as_sftp():
            return attributes_of(await self._followed(text_of(path)))

    async def fstat(self, file_obj: Any) -> asyncssh.SFTPAttrs:
        return await self.stat(file_obj.path.encode())

    async def setstat(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        if attrs.size is not None:
            await self._run("truncate", f"--size={attrs.size}", path=path)
        if attrs.permissions is not None:
            await self._run("chmod", f"{stat.S_IMODE(attrs.permissions):o}", path=path)
        if attrs.mtime is not None:
            await self._run("touch", "-m", "-d", f"@{attrs.mtime:.0f}", path=path)

    async def lsetstat(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        await self.setstat(path, attrs)

    async def fsetstat(self, file_obj: Any, attrs: asyncssh.SFTPAttrs) -> None:
        """Of a file that is written, once it is there."""
        if isinstance(file_obj, Writing):
            file_obj.attributes = attrs
        else:
            await self.setstat(file_obj.path.encode(), attrs)

    async def scandir(self, path: bytes) -> AsyncIterator[asyncssh.SFTPName]:
        here = asyncssh.SFTPAttrs(permissions=stat.S_IFDIR | 0o755)
        with _opened(self._access):
            page = FileSelection(limit=_PAGE)
            while True:
                with as_sftp():
                    found = await (await self._files()).list(text_of(path), selection=page)
                for name in (b".", b"..") if page.after is None else ():
                    yield asyncssh.SFTPName(name, attrs=here)
                for each in found:
                    yield asyncssh.SFTPName(each.name.encode(), attrs=attributes_of(each))
                if len(found) < _PAGE:
                    return
                page = replace(page, after=found[-1].path)

    async def remove(self, path: bytes) -> None:
        await self._run("unlink", path=path)

    async def mkdir(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        await self._run("mkdir", f"-m{(attrs.permissions or 0o755) & 0o777:o}", path=path)

    async def rmdir(self, path: bytes) -> None:
        await self._run("rmdir", path=path)

    async def realpath(self, path: bytes) -> bytes:
        return text_of(path).encode()

    async def readlink(self, path: bytes) -> bytes:
        with as_sftp():
            info = await (await self._files()).stat(text_of(path))
        if info.target is None:
            raise asyncssh.SFTPFailure("This is not a link.")
        return info.target.encode()

    async def rename(self, oldpath: bytes, newpath: bytes) -> None:
        if await self._exists(text_of(newpath)):
            raise asyncssh.SFTPFailure("The file exists.")
        await self.posix_rename(oldpath, newpath)

    async def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        with as_sftp():
            await (await self._files()).move(text_of(oldpath), text_of(newpath))

    async def symlink(self, oldpath: bytes, newpath: bytes) -> None:
        await self._run("ln", "-s", "--", oldpath.decode(), path=newpath)

    async def link(self, oldpath: bytes, newpath: bytes) -> None:
        await self._run("ln", relative_to_workspace(oldpath), path=newpath)

    async def _exists(self, path: str) -> bool:
        try:
            await (await self._files()).stat(path)
        except FileMissingError:
            return False
        return True

    async def _followed(self, path: str) -> FileInfo:
        """The entry that links lead to."""
        files = await self._files()
        for _ in range(_MOST_LINKS):
            info = await files.stat(path)
            if info.target is None:
                return info
            path = posixpath.join(posixpath.dirname(info.path), info.target)
        raise FileMissingError(path)

    async def _run(self, *words: str, path: bytes) -> None:
        """A command of the sandbox about this path. Raises SFTPFailure."""
        with as_sftp():
            command, errors = Command((*words, relative_to_workspace(path))), b""
            async with aclosing((await self._session()).processes.run(command)) as messages:
                async for each in messages:
                    if isinstance(each, Output):
                        errors = (errors + each.data)[-_ERROR_BYTES:]
                    elif isinstance(each, Process) and each.exit_code:
                        reason = errors.decode(errors="replace").strip()
                        raise asyncssh.SFTPFailure(reason or shlex.join(words))

"""Files of a running sandbox, for both kinds of program."""

from pathlib import Path

from sandyard_client import file_flows as files
from sandyard_client.client import AsyncClient, Client
from sandyard_client.models import FileAnswer


class Files:
    """Files of a running sandbox; paths are absolute or relative to `/workspace`."""

    def __init__(self, client: Client, sandbox_id: str) -> None:
        self._client = client
        self._sandbox_id = sandbox_id

    def read(self, path: str) -> bytes:
        return self._client.run(files.read(self._client.calls, self._sandbox_id, path))

    def write(self, path: str, data: bytes | str) -> FileAnswer:
        """Write the file completely or not at all; creates parent folders."""
        content = data.encode() if isinstance(data, str) else data
        return self._client.run(files.write(self._client.calls, self._sandbox_id, path, content))

    def list(self, path: str = "/workspace", *, depth: int = 1) -> list[FileAnswer]:
        flow = files.list_folder(self._client.calls, self._sandbox_id, path, depth)
        return self._client.run(flow)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its contents."""
        self._client.run(files.remove(self._client.calls, self._sandbox_id, path))

    def upload(self, source: Path, path: str, *, progress: files.Progress | None = None) -> None:
        """Upload a local file or folder."""
        flow = files.upload(self._client.calls, self._sandbox_id, source, path, progress)
        self._client.run(flow)

    def download(self, path: str, target: Path, *, progress: files.Progress | None = None) -> None:
        """Download a file or a folder to a local path."""
        flow = files.download(self._client.calls, self._sandbox_id, path, target, progress)
        self._client.run(flow)


class AsyncFiles:
    """The same for asyncio."""

    def __init__(self, client: AsyncClient, sandbox_id: str) -> None:
        self._client = client
        self._sandbox_id = sandbox_id

    async def read(self, path: str) -> bytes:
        return await self._client.run(files.read(self._client.calls, self._sandbox_id, path))

    async def write(self, path: str, data: bytes | str) -> FileAnswer:
        content = data.encode() if isinstance(data, str) else data
        flow = files.write(self._client.calls, self._sandbox_id, path, content)
        return await self._client.run(flow)

    async def list(self, path: str = "/workspace", *, depth: int = 1) -> list[FileAnswer]:
        flow = files.list_folder(self._client.calls, self._sandbox_id, path, depth)
        return await self._client.run(flow)

    async def remove(self, path: str) -> None:
        await self._client.run(files.remove(self._client.calls, self._sandbox_id, path))

    async def upload(
        self, source: Path, path: str, *, progress: files.Progress | None = None
    ) -> None:
        flow = files.upload(self._client.calls, self._sandbox_id, source, path, progress)
        await self._client.run(flow)

    async def download(
        self, path: str, target: Path, *, progress: files.Progress | None = None
    ) -> None:
        flow = files.download(self._client.calls, self._sandbox_id, path, target, progress)
        await self._client.run(flow)

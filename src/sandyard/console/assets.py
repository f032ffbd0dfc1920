"""The console's static files, at addresses that change with their content, so that browsers can
cache them forever."""

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.responses import Response

from sandyard.kit.errors import NotFoundError

PREFIX = "/console/static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


class Assets:
    def __init__(self) -> None:
        root = files("sandyard.console") / "static"
        self._files = {name: each.read_bytes() for name, each in _below(root, "")}
        digest = hashlib.sha256()
        for name, content in sorted(self._files.items()):
            digest.update(name.encode() + content)
        self._version = digest.hexdigest()[:12]

    def path(self, name: str) -> str:
        """The URL of a file; KeyError if there is none of that name."""
        _ = self._files[name]
        return f"{PREFIX}/{self._version}/{name}"

    def response(self, name: str) -> Response:
        content = self._files.get(name)
        if content is None:
            raise NotFoundError("There is no such file.")
        suffix = name[name.rindex(".") :]
        return Response(
            content,
            media_type=_TYPES[suffix],
            headers={"Cache-Control": "public, max-age=31536000, immutable"},
        )


def _below(folder: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for each in folder.iterdir():
        if each.is_dir():
            found.extend(_below(each, f"{prefix}{each.name}/"))
        elif any(each.name.endswith(suffix) for suffix in _TYPES):
            found.append((prefix + each.name, each))
    return found

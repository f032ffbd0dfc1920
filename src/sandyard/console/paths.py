"""Which requests are for the console."""

from starlette.types import Scope


def is_for_console(scope: Scope) -> bool:
    path: str = scope["path"]
    return path == "/" or path.startswith("/console")

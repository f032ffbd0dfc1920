"""The name of a node: one data dir, with everything that runs and is stored there.

Data held by another node is not visible here, and is never treated as deleted.
"""

import os
import secrets
from pathlib import Path

from sandyard.kit.errors import UnavailableError


class ElsewhereError(UnavailableError):
    """This is on another node. Call the server there; nothing was changed."""

    code = "ON_ANOTHER_NODE"

    def __init__(self, node: str) -> None:
        """Without `retry_after`: this node's answer will not change."""
        words = " ".join((type(self).__doc__ or "").split())
        super().__init__(f"{words} The node is {node}.", retry_after=None, details={"node": node})


def require_here(
    holder: str | None, *, node: str, error: type[ElsewhereError] = ElsewhereError
) -> None:
    """Raise the error with the holder's name, unless this node or no node holds it."""
    if holder is not None and holder != node:
        raise error(holder)


def node_name(data_dir: Path) -> str:
    """The node's name, which identifies what runs there; generated at the first start."""
    path = data_dir / "node"
    if not path.exists():
        data_dir.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"node.{os.getpid()}")
        draft.write_text(secrets.token_hex(8))
        try:
            os.link(draft, path)  # atomic: of two processes that start at once, one wins
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text().strip()

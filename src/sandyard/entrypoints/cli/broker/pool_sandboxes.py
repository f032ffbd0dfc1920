"""`sandyard pool quarantine` and `history`: one sandbox of the pool, by its id or name."""

import re
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.connecting import ServerChoice, connected, connection_options
from sandyard.entrypoints.cli.event_log.event_lines import COLUMNS
from sandyard.entrypoints.cli.showing import View, field, output_options

if TYPE_CHECKING:
    from sandyard_client import Client

_EPILOG = """\b
Examples:
  sandyard pool quarantine lab-042 --reason "no network"
  sandyard pool history lab-042 -o wide
"""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ROW = (
    field("sandbox", "sandbox_id"),
    field("name", "name"),
    field("status", "status"),
    field("reason", "status_reason"),
)


@click.command("quarantine", epilog=_EPILOG)
@click.argument("sandbox")
@click.option("--reason", help="Stored with the sandbox, for people.")
@output_options()
@connection_options
def quarantine(target: ServerChoice, view: View, sandbox: str, reason: str | None) -> None:
    """Take a sandbox out of the pool until an operator restores it. Needs the admin token."""
    with connected(target) as client:
        path = f"/v1/admin/sandboxes/{_id_of(client, sandbox)}/quarantine"
        body = None if reason is None else {"reason": reason}
        view.show_one(client.call(_asked("POST", path, json=body)), _ROW)


@click.command("history", epilog=_EPILOG)
@click.argument("sandbox")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@output_options(watch=True)
@connection_options
def history(target: ServerChoice, view: View, sandbox: str, limit: int) -> None:
    """Show a sandbox's events, newest first. A deleted sandbox needs its id."""
    with connected(target) as client:
        request = _asked("GET", f"/v1/admin/sandboxes/{_id_of(client, sandbox)}/history")
        view.show(lambda: list(client.items(request, "events", limit=limit)), COLUMNS)


def _id_of(client: "Client", sandbox: str) -> str:
    from sandyard_client import NotFoundError

    if _UUID.fullmatch(sandbox):
        return sandbox
    request = _asked("GET", "/v1/admin/sandboxes", query={"name": sandbox, "limit": 100})
    for row in client.items(request, "sandboxes"):
        if row["name"] == sandbox:
            return str(row["sandbox_id"])
    raise NotFoundError(404, "SANDBOX_NOT_FOUND", f"The pool has no sandbox {sandbox}.")


def _asked(method: str, path: str, **more: Any) -> Any:
    """Reads may be retried; changes may not, or the retry would be refused as already done."""
    from sandyard_client import Credential, Request

    return Request(method, path, Credential.ADMIN, is_repeatable=method == "GET", **more)

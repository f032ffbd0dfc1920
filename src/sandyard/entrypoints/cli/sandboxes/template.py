"""`sandyard template`."""

import hashlib
import os
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from sandyard.entrypoints.cli.calls.row import Rows
from sandyard.entrypoints.cli.connecting import ServerChoice, connected
from sandyard.entrypoints.cli.exit_codes import CallFailedError, ExitCode
from sandyard.entrypoints.cli.sandboxes.rows import TEMPLATE_COLUMNS, template

if TYPE_CHECKING:
    from sandyard_client import Client, Request

_EPILOG = """\b
Examples:
  sandyard template create app --repository https://github.com/example/app --isolation gvisor
  sandyard template build web .
  sandyard template build web:v2 . -f deploy/Dockerfile --cpu 2 --memory-mb 2048
"""
_POLL_SEC = 0.3
_TRANSFER_SEC = 3600
_IGNORED = ".dockerignore"
command = Rows(
    "template",
    template,
    columns=TEMPLATE_COLUMNS,
    help="Manage templates, and build them from Dockerfiles.",
    epilog=_EPILOG,
)


@command.server_command("build")
@click.argument("name")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    *("-f", "--file"),
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The Dockerfile; default: the folder's.",
)
@click.option("--cpu", type=int, default=1, help="vCPU of its sandboxes.")
@click.option("--memory-mb", type=int, default=1024, help="Their memory in MB.")
def build(
    target: ServerChoice, name: str, folder: Path, file: Path | None, cpu: int, memory_mb: int
) -> None:
    """Build a template from a Dockerfile, in a sandbox; COPY copies from the folder."""
    dockerfile = (file or folder / "Dockerfile").read_text()
    with connected(target) as client, tempfile.TemporaryFile() as context:
        wanted = {"name": name, "cpuCount": cpu, "memoryMB": memory_mb}
        made = client.call(_about("POST", "/v3/templates", json=wanted))
        place, build_id = f"/templates/{made['templateID']}", made["buildID"]
        _pack(folder, context)
        digest = _send(client, place, context)
        path = f"{place}/builds/{build_id}"
        recipe = {"dockerfile": dockerfile, "context": digest}
        client.call(_about("POST", f"/v2{path}", json=recipe))
        _follow(client, path)
    click.echo(f"built {name} ({made['templateID']})")


def _about(method: str, path: str, **more: Any) -> "Request":
    from sandyard_client.wire import Credential, Request

    is_repeatable = method != "POST"
    return Request(method, f"/e2b{path}", Credential.ACCOUNT, is_repeatable=is_repeatable, **more)


def _pack(folder: Path, context: Any) -> None:
    """All files of the folder that its `.dockerignore` does not exclude."""
    from e2b_dockerfile_utils import PatternMatcher

    ignored = folder / _IGNORED
    matcher = PatternMatcher(ignored.read_text().splitlines() if ignored.exists() else [])
    with tarfile.open(fileobj=context, mode="w:gz", compresslevel=1) as archive:
        for root, folders, names in os.walk(folder):
            folders.sort()
            for each in (*folders, *sorted(names)):
                path = Path(root, each)
                inner = str(path.relative_to(folder))
                if not matcher.matches(inner):
                    archive.add(path, inner, recursive=False)


def _send(client: "Client", place: str, context: Any) -> str:
    """Upload it, and give its hash."""
    size = context.tell()
    context.seek(0)
    digest = hashlib.file_digest(context, "sha256").hexdigest()
    link = client.call(_about("GET", f"{place}/files/{digest}"))

    def content() -> Iterator[bytes]:
        context.seek(0)
        return iter(lambda: context.read(1 << 20), b"")

    signature = urlsplit(link["url"]).query.removeprefix("signature=")
    client.call(
        _about(
            "PUT",
            f"{place}/files/{digest}",
            query={"signature": signature},
            content=content,
            size=size,
            timeout_sec=_TRANSFER_SEC,
        )
    )
    return digest


def _follow(client: "Client", path: str) -> None:
    """Print its log until it ends. Raises CallFailedError if it has failed."""
    shown = 0
    while True:
        found = client.call(_about("GET", f"{path}/status", query={"logsOffset": shown}))
        for entry in found["logEntries"]:
            click.echo(entry["message"])
        shown += len(found["logEntries"])
        if found["status"] == "error":
            raise CallFailedError(found["reason"]["message"], ExitCode.FAILED)
        if found["status"] == "ready" and not found["logEntries"]:
            return
        time.sleep(_POLL_SEC)

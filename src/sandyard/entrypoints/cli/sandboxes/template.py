"""`sandyard template`."""

import hashlib
import os
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from sandyard.entrypoints.cli.connecting import ServerChoice, ServerCommands, connected
from sandyard.entrypoints.cli.exit_codes import CallFailedError, ExitCode
from sandyard.entrypoints.cli.showing import View, field

if TYPE_CHECKING:
    from sandyard_client import Client, Request

_EPILOG = """\b
Examples:
  sandyard template create web --image img-7c2e9g4j1m6p3s8vx
  sandyard template create app --repository https://github.com/example/app --isolation gvisor
  sandyard template build web .
  sandyard template build web:v2 . -f deploy/Dockerfile --cpu 2 --memory-mb 2048
"""
_POLL_SEC = 0.3
_TRANSFER_SEC = 3600
_IGNORED = ".dockerignore"
_COLUMNS = (
    field("template", "template_id"),
    field("name", "name"),
    field("visibility", "visibility"),
    field("image", "image"),
    field("isolation", "isolation"),
    field("repository", "repository_url"),
    field("description", "description", is_wide=True),
)
command = ServerCommands(
    "template",
    help="What sandboxes are made from: images, repositories, Dockerfiles.",
    epilog=_EPILOG,
)


@command.server_command("create")
@click.argument("name")
@click.option("--image", help="Id of your image, or name of an environment.")
@click.option(
    "--repository", "repository_url", help="https://…; without it the image's program runs."
)
@click.option("--ref", "repository_ref", help="A branch or a tag of the repository.")
@click.option("--network", type=click.Choice(["none", "packages", "internet"]))
@click.option("--isolation", type=click.Choice(["bubblewrap", "gvisor"]), help="The weakest.")
@click.option("--category", default="other", show_default=True)
@click.option("--language", default="any", show_default=True)
def create(target: ServerChoice, view: View, **fields: str | None) -> None:
    """Create a template from an image or a repository."""
    from sandyard_client.sandbox_flows import about

    body = {name: each for name, each in fields.items() if each is not None}
    with connected(target) as client:
        made = client.call(about("POST", "/templates", repeatable=False, json=body))
    view.show_one(made, _COLUMNS)


@command.server_command("ls", watch=True)
@click.option("--own", "is_own", is_flag=True, help="Without those of others.")
def list_templates(target: ServerChoice, view: View, is_own: bool) -> None:
    """List the templates that you can use."""
    from sandyard_client.sandbox_flows import about

    with connected(target) as client:
        listing = about("GET", "/templates", query={"limit": 100})

        def look() -> Sequence[dict[str, Any]]:
            found = client.items(listing, "templates")
            return [each for each in found if each["is_own"] or not is_own]

        view.show(look, _COLUMNS)


@command.server_command("rm")
@click.argument("template")
def remove(target: ServerChoice, template: str) -> None:
    """Delete a template; sandboxes that were made from it stay."""
    from sandyard_client import sandbox_flows as flows

    with connected(target) as client:
        template_id = client.run(flows.template_id(client.calls, template))
        client.call(flows.about("DELETE", f"/templates/{template_id}"))
    click.echo(f"removed {template_id}")


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

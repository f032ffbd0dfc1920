"""`sandyard image`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sandyard.entrypoints.cli.calls.row import Rows
from sandyard.entrypoints.cli.connecting import ServerChoice, connected
from sandyard.entrypoints.cli.exit_codes import CallFailedError, ExitCode
from sandyard.entrypoints.cli.progress import transferring
from sandyard.entrypoints.cli.sandboxes.rows import IMAGE_COLUMNS, image
from sandyard.entrypoints.cli.showing import View, columns_of

if TYPE_CHECKING:
    from sandyard_client import Client, Request

_EPILOG = """\b
Examples:
  sandyard image pull registry.example.com/shop/web:1.4
  sandyard image pull registry.example.com/private:1 --project prj-… --secret REGISTRY
  sandyard image import web.tar --name web
"""
_POLL_SEC = 0.3
_TRANSFER_SEC = 3600


command = Rows(
    "image",
    image,
    columns=IMAGE_COLUMNS,
    help="Pull, import and delete your images.",
    epilog=_EPILOG,
)


@command.server_command("pull")
@click.argument("reference")
@click.option("--project", "project_id", help="The project that has the secret.")
@click.option("--secret", help="Name of its secret with `user:password` for the registry.")
def pull(target: ServerChoice, view: View, reference: str, **login: str | None) -> None:
    """Pull an image from a registry; returns when it is ready, or has failed."""
    from sandyard_client.sandbox_flows import about

    body = {"reference": reference, **{name: each for name, each in login.items() if each}}
    with connected(target) as client:
        _make(client, view, about("POST", "/images", repeatable=False, json=body))


@command.server_command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", help="Its name in your list; default: the file's.")
def import_(target: ServerChoice, view: View, file: Path, name: str | None) -> None:
    """Upload an image: an OCI layout in a tar, or what `docker save` wrote."""
    from sandyard_client.file_flows import content_of
    from sandyard_client.sandbox_flows import about

    size = file.stat().st_size
    with connected(target) as client, transferring(f"up {file.name}") as progress:
        request = about(
            "POST",
            "/images/import",
            repeatable=False,
            query={"name": name or file.name},
            headers={"Content-Type": "application/x-tar"},
            content=content_of(file, size, progress),
            size=size,
            timeout_sec=_TRANSFER_SEC,
        )
        _make(client, view, request)


def _make(client: "Client", view: View, request: "Request") -> None:
    """Show the image when it is ready. Raises CallFailedError if it has failed."""
    from sandyard_client.sandbox_flows import about

    image = client.call(request)
    with transferring(f"pull {image['reference']}") as progress:
        while image["status"] == "pulling":
            time.sleep(_POLL_SEC)
            image = client.call(about("GET", f"/images/{image['image_id']}"))
            if (known := image["progress"]) is not None:
                progress(known["pulled_bytes"], known["total_bytes"])
    view.show_one(image, columns_of(IMAGE_COLUMNS))
    if image["status"] == "failed":
        raise CallFailedError(image["reason"], ExitCode.FAILED)

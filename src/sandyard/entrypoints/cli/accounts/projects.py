"""`sandyard project` and `sandyard preview`: what is more than one call of the API."""

from pathlib import Path

import click

from sandyard.entrypoints.cli.accounts.rows import preview, project
from sandyard.entrypoints.cli.calls.names import find_id
from sandyard.entrypoints.cli.calls.row import ALL
from sandyard.entrypoints.cli.connecting import ServerChoice, connected
from sandyard.entrypoints.cli.showing import View, columns_of, show_lines

__all__ = ["preview", "project"]


@project.server_command("push")
@click.argument("name", metavar="PROJECT")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--message", default="", help="What the change is for.")
def push(target: ServerChoice, view: View, name: str, folder: Path, message: str) -> None:
    """Replace the project's files by those of a folder; `preview sync` shows them."""
    from sandyard_client.file_flows import put_tar
    from sandyard_client.operations import request_of

    with connected(target) as client:
        values = {
            "project_id": find_id(client, "list_projects", "project_id", name),
            "message": message,
        }
        request = request_of("write_project_tar", values)
        changed = client.run(put_tar(client.calls, request, folder))
    view.show_one(changed, columns_of(ALL))


@preview.server_command("logs")
@click.argument("name", metavar="PROJECT")
@click.option("-f", "--follow", is_flag=True, help="Follow until the preview ends.")
@click.option("--lines", type=click.IntRange(1, 1000), default=100)
def logs(target: ServerChoice, name: str, follow: bool, lines: int) -> None:
    """Show the output of the preview's program."""
    from sandyard_client.log_flows import log_lines

    with connected(target) as client:
        project_id = find_id(client, "list_projects", "project_id", name)
        path = f"/projects/{project_id}/sandbox/logs"
        show_lines(client.iterate(log_lines(client.calls, path, lines=lines, follow=follow)))

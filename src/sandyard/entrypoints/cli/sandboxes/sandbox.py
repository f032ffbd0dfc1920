"""`sandyard sandbox`."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.calls.names import id_of
from sandyard.entrypoints.cli.calls.row import Rows
from sandyard.entrypoints.cli.connecting import ServerChoice, connected
from sandyard.entrypoints.cli.exit_codes import CallFailedError, ExitCode
from sandyard.entrypoints.cli.progress import while_working
from sandyard.entrypoints.cli.sandboxes.copy_files import copy
from sandyard.entrypoints.cli.sandboxes.rows import SANDBOX_COLUMNS, groups, rows
from sandyard.entrypoints.cli.sandboxes.run_command import exec_command
from sandyard.entrypoints.cli.sandboxes.shell import shell
from sandyard.entrypoints.cli.showing import View, columns_of, show_lines

if TYPE_CHECKING:
    from sandyard_client import Client

_EPILOG = """\b
Examples:
  sandyard sandbox create my-box --template python
  sandyard sandbox exec my-box -- python -c 'print(6 * 7)'
  sandyard sandbox shell my-box
  sandyard sandbox cp ./src my-box:/workspace/src
  sandyard sandbox logs -f my-box
  sandyard sandbox program my-box restart
  sandyard sandbox open my-box
  sandyard sandbox ls --watch
  sandyard sandbox rm my-box
"""
_COLUMNS = columns_of(SANDBOX_COLUMNS)
command = Rows(
    "sandbox",
    rows,
    columns=SANDBOX_COLUMNS,
    help="Create, use and delete the sandboxes of your account.",
    epilog=_EPILOG,
)
for each in groups:
    command.add_command(each)


command.add_command(exec_command)
command.add_command(shell)
command.add_command(copy)


@command.server_command("create")
@click.argument("name")
@click.option("--template", required=True, help="Name or id of the template.")
@click.option("--no-start", is_flag=True, help="Create it without starting it.")
@click.option("--network", type=click.Choice(["none", "packages", "internet"]))
@click.option("--cpu", "cpu_spec", type=float, help="1 to 8 cores.")
@click.option("--memory", "memory_spec", type=float, help="0.5 to 16 GB.")
@click.option(
    "--program-policy",
    type=click.Choice(["on_failure", "never"]),
    help="Whether its program is started again after it failed (on_failure).",
)
@click.option(
    "--keeps-memory", is_flag=True, default=None, help="A stop keeps its processes too (gVisor)."
)
@click.option("--project", "project_id", help="Id of the project; default: the default project.")
@click.option("--max-seconds", "max_running_seconds", type=int, help="Maximum duration of a run.")
@click.option(
    "--idle-stop",
    "idle_stop_minutes",
    type=int,
    help="Stop after this many minutes without use (60).",
)
@click.option(
    "--volume",
    "volumes",
    multiple=True,
    callback=lambda _context, _option, given: [_mount(each) for each in given] or None,
    help="NAME:PATH, or NAME:PATH:ro to read it only: a volume to mount.",
)
def create(
    target: ServerChoice, view: View, name: str, template: str, no_start: bool, **options: Any
) -> None:
    """Create a sandbox and start it. If its machine does not start, it is deleted again."""
    from sandyard_client import sandbox_flows as flows

    with connected(target) as client, while_working("start"):
        make = flows.create if no_start else flows.create_started
        made = client.run(make(client.calls, template, {"name": name, **options}))
        found = client.call(flows.about("GET", f"/sandboxes/{made.sandbox_id}"))
    _show(view, found)


def _mount(text: str) -> dict[str, Any]:
    name, _, place = text.partition(":")
    path = place.removesuffix(":ro")
    if not name or not path.startswith("/"):
        raise click.BadParameter(f"{text} is not NAME:PATH or NAME:PATH:ro")
    return {"name": name, "path": path, "read_only": path != place}


@command.server_command("start")
@click.argument("sandbox")
@click.option("--rescue", is_flag=True, help="Without its program, to repair it inside.")
def start(target: ServerChoice, view: View, sandbox: str, rescue: bool) -> None:
    """Start a sandbox; returns when it serves, or its program has failed."""
    from sandyard_client import sandbox_flows as flows

    with connected(target) as client, while_working("start"):
        sandbox_id = id_of(client, sandbox)
        client.run(flows.start(client.calls, sandbox_id, program=not rescue))
        found = client.call(flows.about("GET", f"/sandboxes/{sandbox_id}"))
    _show(view, found)


def _show(view: View, found: dict[str, Any]) -> None:
    """With the last lines of a program that failed, on stderr."""
    view.show_one(found, _COLUMNS)
    program = found["program"] or {}
    if program.get("status") == "failed":
        click.echo(f"Its program failed. {program['reason']}", err=True)
        for line in program["last_lines"]:
            click.echo(f"  {line}", err=True)


@command.server_command("program")
@click.argument("sandbox")
@click.argument("action", type=click.Choice(["start", "stop", "restart"]))
def program(target: ServerChoice, view: View, sandbox: str, action: str) -> None:
    """Start, stop or restart the program of a running sandbox, which itself stays up."""
    _act(target, view, sandbox, f"program/{action}", None)


def _act(target: ServerChoice, view: View, sandbox: str, action: str, body: Any) -> None:
    from sandyard_client.sandbox_flows import about

    with connected(target) as client, while_working(action):
        path = f"/sandboxes/{id_of(client, sandbox)}/{action}"
        found = client.call(about("POST", path, json=body, timeout_sec=120))
    _show(view, found)


@command.server_command("stop")
@click.argument("sandbox")
@click.option(
    "--memory/--no-memory",
    default=None,
    help="Keep its processes too, under gVisor; default: as it was created.",
)
def stop(target: ServerChoice, sandbox: str, memory: bool | None) -> None:
    """Stop a sandbox and keep its files."""
    from sandyard_client import sandbox_flows as flows

    with connected(target) as client, while_working("stop"):
        sandbox_id = id_of(client, sandbox)
        stopped = client.run(flows.stop(client.calls, sandbox_id, memory=memory))
    kept = "its files and its processes are" if stopped.snapshot_has_memory else "its files are"
    click.echo(f"stopped {sandbox_id}; {kept} kept")


@command.server_command("ls", watch=True)
@click.option("--all", "is_all", is_flag=True, help="Include deleted ones.")
@click.option(
    "--status", type=click.Choice(["created", "starting", "running", "stopped", "timeout"])
)
def list_sandboxes(target: ServerChoice, view: View, is_all: bool, status: str | None) -> None:
    """List the account's sandboxes."""
    from sandyard_client.sandbox_flows import about

    with connected(target) as client:
        listing = about("GET", "/sandboxes", query={"limit": 100, "status": status})

        def look() -> Sequence[dict[str, Any]]:
            found = client.items(listing, "sandboxes")
            return [each for each in found if is_all or each["status"] != "recycled"]

        view.show(look, _COLUMNS)


@command.server_command("rm")
@click.argument("sandboxes", nargs=-1, required=True)
def remove(target: ServerChoice, sandboxes: tuple[str, ...]) -> None:
    """Delete sandboxes and their files; usage and bills stay. If one fails, the others are still
    deleted."""
    from sandyard_client import sandbox_flows as flows

    failures: list[CallFailedError] = []
    for sandbox in sandboxes:
        try:
            with connected(target) as client:
                sandbox_id = id_of(client, sandbox)
                client.run(flows.recycle(client.calls, sandbox_id))
        except CallFailedError as failure:
            failures.append(failure)
        else:
            click.echo(f"removed {sandbox_id}")
    for other in failures[1:]:
        other.show()
    if failures:
        raise failures[0]


@command.server_command("logs")
@click.argument("sandbox")
@click.option("-f", "--follow", is_flag=True, help="Follow until the run ends.")
@click.option("--lines", type=click.IntRange(1, 1000), default=100)
def logs(target: ServerChoice, sandbox: str, follow: bool, lines: int) -> None:
    """Show the output of the last run's program."""
    from sandyard_client.log_flows import log_lines

    with connected(target) as client:
        path = f"/sandboxes/{id_of(client, sandbox)}/logs"
        flow = log_lines(client.calls, path, lines=lines, follow=follow)
        show_lines(client.iterate(flow))


@command.server_command("open")
@click.argument("sandbox")
@click.option("--port", type=click.IntRange(1, 65535), help="Default: the port of its program.")
@click.option("--minutes", type=click.IntRange(1), default=60)
@click.option(
    "--print", "is_printed", is_flag=True, help="Print the link instead of opening a browser."
)
def open_sandbox(
    target: ServerChoice, view: View, sandbox: str, port: int | None, minutes: int, is_printed: bool
) -> None:
    """Open the sandbox's page in a browser, with a link that is valid for some minutes. Without a
    browser the link is printed, and the exit code is 1."""
    from sandyard_client.sandbox_flows import link

    with connected(target) as client:
        sandbox_id = id_of(client, sandbox)
        _require_served(client, sandbox_id)
        made = client.run(link(client.calls, sandbox_id, port=port, minutes=minutes))
    if view.output == "json":
        shown = {"url": made.url, "token": made.token, "expires_at": made.expires_at.isoformat()}
        click.echo(json.dumps(shown))
    elif is_printed or made.url is None:
        click.echo(made.url or made.token)
    else:
        _browse(made.url)


def _require_served(client: "Client", sandbox_id: str) -> None:
    """A request to its page is answered: it runs, or the request starts it."""
    from sandyard_client import ConflictError
    from sandyard_client.sandbox_flows import about

    found = client.call(about("GET", f"/sandboxes/{sandbox_id}"))
    if found["status"] != "running" and not found["wake_on_request"]:
        raise ConflictError(409, "NOT_RUNNING", "It is not running. Start it first.")


def _browse(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        click.echo(url)
        raise CallFailedError("No browser could be opened. Open the link above.", ExitCode.FAILED)

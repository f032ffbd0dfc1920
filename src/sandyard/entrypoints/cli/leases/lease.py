"""`sandyard lease`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.connecting import ServerChoice, connected, connection_options
from sandyard.entrypoints.cli.leases.lease_exec import exec_command
from sandyard.entrypoints.cli.showing import View, field, output_options, unix_time

if TYPE_CHECKING:
    from sandyard_client import Client
    from sandyard_client.lease_flows import LeaseState
    from sandyard_client.models import TicketAnswer

_EPILOG = """\b
Examples:
  sandyard lease allocate --track dns-101-ann --wait 60 -o json
  sandyard lease extend --track dns-101-ann --minutes 30
  sandyard lease replace --track dns-101-ann --reason 'no network'
  sandyard lease release --track dns-101-ann
  sandyard lease list --watch
  sandyard lease exec --wait 60 -- pytest tests/lab
"""
_LEASE = (
    field("sandbox", "sandbox_id"),
    field("name", "name"),
    unix_time("expires", "expires_at"),
    field("external id", "external_id", is_wide=True),
    unix_time("allocated", "allocated_at", is_wide=True),
)
_ROW = (
    *_LEASE[:2],
    field("track", "allocated_to_track"),
    *_LEASE[2:],
    field("key", "idempotency_key", is_wide=True),
    field("label", "track_name", is_wide=True),
)
_TRACK = click.option("--track", required=True, help="Track id: 1 to 128 of A-Z a-z 0-9 . _ : -")
_KEY = click.option(
    "--key", help="Idempotency key, for several leases of one track; default: the track id."
)


def _of_one_lease(function: Callable[..., Any]) -> Callable[..., Any]:
    """A lease by its sandbox, or by track and key."""
    return click.argument("sandbox_id", required=False)(_TRACK(_KEY(function)))


@click.group("lease", epilog=_EPILOG)
def command() -> None:
    """Lease sandboxes of the pool; extend, replace and release them."""


command.add_command(exec_command)


def wish_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a lease, and how long to wait for it."""
    options = (
        click.option(
            "--wait",
            type=click.FloatRange(0),
            default=0.0,
            help="Seconds to wait for a free sandbox.",
        ),
        click.option("--minutes", type=click.IntRange(1), help="Duration of the lease."),
        click.option("--name-prefix", help="Only a sandbox whose name has this prefix."),
        click.option("--label", help="The lab's label, stored with the lease."),
        click.option("--urgency", type=click.IntRange(0, 7), help="0 is served first, 7 last."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@command.command("allocate", epilog=_EPILOG)
@_TRACK
@_KEY
@wish_options
@output_options()
@connection_options
def allocate(target: ServerChoice, view: View, **wish: Any) -> None:
    """Lease a sandbox, or show the existing lease of the track and key."""
    from sandyard_client import Lease

    with connected(target, patience_sec=60) as client:
        with position_line() as tell_position:
            lease = Lease.acquire(**wish, client=client, on_wait=tell_position)
        view.show_one(lease.as_json(), _LEASE)


@command.command("release", epilog=_EPILOG)
@_of_one_lease
@connection_options
def release(target: ServerChoice, sandbox_id: str | None, track: str, key: str | None) -> None:
    """Release a lease, by its sandbox or by track and key. It may be repeated: if the track has no
    lease, a line on stderr says so, and the exit code is 0."""
    from sandyard_client.lease_flows import LeaseWish, find, give_up

    with connected(target, patience_sec=60) as client:
        if sandbox_id is None:
            state = client.run(find(client.calls, LeaseWish(track, key)))
            if state is None:
                click.echo(f"{_no_lease(track)} Nothing was released.", err=True)
                return
            sandbox_id = state.lease.sandbox_id
        client.run(give_up(client.calls, track, sandbox_id))
    click.echo(f"released {sandbox_id}")


@command.command("extend", epilog=_EPILOG)
@_of_one_lease
@click.option("--minutes", type=click.IntRange(1), required=True, help="Minutes to add.")
@output_options()
@connection_options
def extend(target: ServerChoice, view: View, minutes: int, **lease: Any) -> None:
    """Extend a lease."""
    from sandyard_client.lease_flows import extend

    _change(target, view, extend, minutes, **lease)


@command.command("replace", epilog=_EPILOG)
@_of_one_lease
@click.option("--reason", default="requested by the track", show_default=True, help="Why.")
@output_options()
@connection_options
def replace(target: ServerChoice, view: View, reason: str, **lease: Any) -> None:
    """Get another sandbox for the rest of the lease; the old one is held for an operator. By its
    sandbox it may be repeated: the result is the same."""
    from sandyard_client.lease_flows import replace_sandbox

    _change(target, view, replace_sandbox, reason, **lease)


def _change(
    target: ServerChoice,
    view: View,
    flow: Callable[..., Any],
    *values: Any,
    sandbox_id: str | None,
    track: str,
    key: str | None,
) -> None:
    """Run the flow on the lease, and show the lease after it."""
    with connected(target) as client:
        chosen = sandbox_id or _found(client, track, key).lease.sandbox_id
        state = client.run(flow(client.calls, track, chosen, *values))
    view.show_one(asdict(state.lease), _LEASE)


@command.command("list", epilog=_EPILOG)
@click.option("--track", help="Only this track.")
@output_options(watch=True)
@connection_options
def list_leases(target: ServerChoice, view: View, track: str | None) -> None:
    """List the leases of all tracks. Needs the admin token."""
    from sandyard_client import Credential, Request

    query = {"status": "allocated", "track": track, "limit": 100}
    request = Request(
        "GET", "/v1/admin/sandboxes", Credential.ADMIN, is_repeatable=True, query=query
    )
    with connected(target) as client:
        view.show(lambda: list(client.items(request, "sandboxes")), _ROW)


@contextmanager
def position_line() -> Iterator[Callable[["TicketAnswer"], None]]:
    """A line that shows the queue position on a terminal, and is cleared after the wait."""

    def tell(ticket: "TicketAnswer") -> None:
        wait = ticket.estimated_wait_sec
        about = "" if wait is None else f", about {wait} s"
        click.echo(f"\rwaiting, position {ticket.position}{about}\x1b[K", err=True, nl=False)

    if not sys.stderr.isatty():
        yield lambda _ticket: None
        return
    try:
        yield tell
    finally:
        click.echo("\r\x1b[K", err=True, nl=False)


def _found(client: "Client", track: str, key: str | None) -> "LeaseState":
    from sandyard_client import NotFoundError
    from sandyard_client.lease_flows import LeaseWish, find

    state = client.run(find(client.calls, LeaseWish(track, key)))
    if state is None:
        raise NotFoundError(404, "NO_LEASE", _no_lease(track))
    return state


def _no_lease(track: str) -> str:
    return f"Track {track} has no lease with this key."

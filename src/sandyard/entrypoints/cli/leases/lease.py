"""`sandyard lease`."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.calls.row import EVENT_COLUMNS, Row, Rows
from sandyard.entrypoints.cli.connecting import ServerChoice, connected
from sandyard.entrypoints.cli.leases.lease_exec import exec_command, position_line, wish_options
from sandyard.entrypoints.cli.showing import View, columns_of

if TYPE_CHECKING:
    from sandyard_client import Client
    from sandyard_client.lease_flows import LeaseState

_EPILOG = """\b
Examples:
  sandyard lease allocate --track dns-101-ann --wait 60 -o json
  sandyard lease extend --track dns-101-ann --minutes 30
  sandyard lease replace --track dns-101-ann --reason 'no network'
  sandyard lease release --track dns-101-ann
  sandyard lease exec --wait 60 -- pytest tests/lab
"""
_LEASE = columns_of(
    "sandbox_id name expires=expires_at external_id=external_id* allocated=allocated_at*"
)
_TRACK = click.option("--track", required=True, help="Track id: 1 to 128 of A-Z a-z 0-9 . _ : -")
_KEY = click.option(
    "--key", help="Idempotency key, for several leases of one track; default: the track id."
)


def _of_one_lease(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("sandbox_id", required=False)(_TRACK(_KEY(function)))


_ROWS = (
    Row("list", "list_pool_sandboxes", "--watch", fixed={"status": "allocated"}),
    Row("history", "list_pool_events", "--track dns-101-ann", columns=EVENT_COLUMNS,
        needed=("track",),
        more="All that happened to a track's sandboxes and tickets, also after their deletion."),
)  # fmt: skip
command = Rows(
    "lease",
    _ROWS,
    columns="sandbox_id name track=allocated_to_track expires=expires_at external_id=external_id* "
    "allocated_at* key=idempotency_key* label=track_name*",
    help="Lease sandboxes of the pool; extend, replace and release them.",
    epilog=_EPILOG,
)


command.add_command(exec_command)


@command.server_command("allocate")
@_TRACK
@_KEY
@wish_options
def allocate(target: ServerChoice, view: View, **wish: Any) -> None:
    """Lease a sandbox, or show the existing lease of the track and key."""
    from sandyard_client import Lease

    with connected(target, patience_sec=60) as client:
        with position_line() as tell_position:
            lease = Lease.acquire(**wish, client=client, on_wait=tell_position)
        view.show_one(lease.as_json(), _LEASE)


@command.server_command("release")
@_of_one_lease
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


@command.server_command("extend")
@_of_one_lease
@click.option("--minutes", type=click.IntRange(1), required=True, help="Minutes to add.")
def extend(target: ServerChoice, view: View, minutes: int, **lease: Any) -> None:
    """Extend a lease."""
    from sandyard_client.lease_flows import extend

    _change(target, view, extend, minutes, **lease)


@command.server_command("replace")
@_of_one_lease
@click.option("--reason", default="requested by the track", help="Why.")
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
    with connected(target) as client:
        chosen = sandbox_id or _found(client, track, key).lease.sandbox_id
        state = client.run(flow(client.calls, track, chosen, *values))
    view.show_one(asdict(state.lease), _LEASE)


def _found(client: "Client", track: str, key: str | None) -> "LeaseState":
    from sandyard_client import NotFoundError
    from sandyard_client.lease_flows import LeaseWish, find

    state = client.run(find(client.calls, LeaseWish(track, key)))
    if state is None:
        raise NotFoundError(404, "NO_LEASE", _no_lease(track))
    return state


def _no_lease(track: str) -> str:
    return f"Track {track} has no lease with this key."

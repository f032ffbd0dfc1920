"""`sandyard usage`."""

import click

from sandyard.entrypoints.cli.connecting import ServerChoice, connected, server_command
from sandyard.entrypoints.cli.showing import Column, View, field, local_iso

_EPILOG = """\b
Examples:
  sandyard usage
  sandyard usage --by sandbox -o wide
  sandyard usage --runs -o json
"""
_SUMS = (
    field("for", "key"),
    field("cost", "amount"),
    field("currency", "currency"),
    field("seconds", "usage_seconds"),
    field("cpu hours", "cpu_hours", is_wide=True),
    field("memory hours", "memory_hours", is_wide=True),
    field("storage hours", "storage_hours", is_wide=True),
)
_RUNS = (
    Column("began", lambda row: local_iso(row["start_time"])),
    Column("ended", lambda row: local_iso(row["end_time"])),
    field("sandbox", "sandbox_id"),
    field("service", "service_type"),
    field("seconds", "seconds"),
    field("cost", "cost"),
    field("currency", "currency"),
    field("hourly rate", "hourly_rate", is_wide=True),
    field("project", "project_id", is_wide=True),
)


@server_command("usage", watch=True, epilog=_EPILOG)
@click.option(
    "--by", type=click.Choice(["day", "project", "sandbox", "service_type"]), default="service_type"
)
@click.option("--runs", is_flag=True, help="List each run, newest first, instead of sums.")
@click.option("--limit", type=click.IntRange(1), default=50, help="Maximum number of runs.")
def command(target: ServerChoice, view: View, by: str, runs: bool, limit: int) -> None:
    """Show this month's cost of the account's sandboxes, including what is not billed yet."""
    from sandyard_client.sandbox_flows import about

    with connected(target) as client:
        if runs:
            listing = about("GET", "/usage", query={"limit": 100})
            view.show(lambda: list(client.items(listing, "usage", limit=limit)), _RUNS)
            return
        month = about("GET", "/billing/month-to-date", query={"by": by})
        view.show(lambda: _with_total(client.call(month)), _SUMS)


def _with_total(month: dict[str, object]) -> list[dict[str, object]]:
    hours = {name: month[name] for name in ("cpu_hours", "memory_hours", "storage_hours")}
    sums = month["sums"]
    assert isinstance(sums, list)  # noqa: S101 - by the API's document
    seconds = sum(each["usage_seconds"] for each in sums)
    total = {"key": "total", "amount": month["total"], "usage_seconds": seconds, **hours}
    return [{**each, "currency": month["currency"]} for each in (*sums, total)]

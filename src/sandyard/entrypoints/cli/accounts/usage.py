"""`sandyard usage`."""

import click

from sandyard.entrypoints.cli.connecting import ServerChoice, connected, server_command
from sandyard.entrypoints.cli.showing import View, columns_of

_EPILOG = """\b
Examples:
  sandyard usage
  sandyard usage --by sandbox -o wide
  sandyard usage --runs -o json
"""
_SUMS = columns_of(
    "for=key cost=amount currency seconds=usage_seconds cpu_hours* memory_hours* storage_hours*"
)
_RUNS = columns_of(
    "began=start_time ended=end_time sandbox_id service=service_type seconds cost currency "
    "hourly_rate* project_id*"
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

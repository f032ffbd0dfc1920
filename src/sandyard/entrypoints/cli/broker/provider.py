"""`sandyard provider`."""

import asyncio
from typing import TYPE_CHECKING

import click

from sandyard.entrypoints.cli.options import quiet_settings

if TYPE_CHECKING:
    from sandyard.settings import Settings

_EPILOG = """\b
Examples:
  CSP_BASE_URL=https://csp.example.com CSP_API_TOKEN=… sandyard provider check
  sandyard provider check --create
  CSP_DIALECT=infoblox sandyard provider check --delete identity/accounts/0c7b1f5e
"""
command = click.Group("provider", help="Check the cloud provider.", epilog=_EPILOG)


@command.command("check", epilog=_EPILOG)
@click.option("--create", is_flag=True, help="Also create a sandbox there, and delete it again.")
@click.option("--delete", "delete_id", metavar="ID", help="Also delete this sandbox there.")
def check(create: bool, delete_id: str | None) -> None:
    """Call the provider as Sandyard does, and report what conforms.

    Reads CSP_BASE_URL, CSP_API_TOKEN and CSP_DIALECT. Without --create and --delete nothing is
    changed at the provider. The exit code is 1 if something does not conform.
    """
    from sandyard.settings import SettingsError

    settings = quiet_settings()
    if settings.provider.csp_base_url is None:
        raise SettingsError("CSP_BASE_URL: must be set to the provider to check")
    if settings.provider.csp_api_token is None:
        raise SettingsError("CSP_API_TOKEN: must be set to the provider's token")
    if not asyncio.run(_check(settings, create=create, delete_id=delete_id)):
        raise click.ClickException(
            "The provider does not conform. The contract is in docs/provider.md."
        )


async def _check(settings: "Settings", *, create: bool, delete_id: str | None) -> bool:
    from sandyard.bootstrap.provider import provider_check

    passed = True
    run = provider_check(settings.provider).run(create=create, delete_id=delete_id)
    async for finding in run:
        mark = {"passed": "ok  ", "failed": "FAIL", "note": "note"}[finding.verdict]
        click.echo(f"{mark}  {finding.call}: {finding.text}")
        passed = passed and finding.verdict != "failed"
    return passed

"""`sandyard provider`."""

import asyncio
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sandyard.settings import Settings
    from sandyard.tools.provider.check import Finding

_EPILOG = """\b
Examples:
  CSP_BASE_URL=https://csp.example.com CSP_API_TOKEN=… sandyard provider check
  sandyard provider check --create
  CSP_DIALECT=infoblox sandyard provider check --delete identity/accounts/0c7b1f5e
"""


@click.group("provider", epilog=_EPILOG)
def command() -> None:
    """Check the cloud provider."""


@command.command("check", epilog=_EPILOG)
@click.option("--create", is_flag=True, help="Also create a sandbox there, and delete it again.")
@click.option("--delete", "delete_id", metavar="ID", help="Also delete this sandbox there.")
def check(create: bool, delete_id: str | None) -> None:
    """Call the provider as Sandyard does, and report what conforms.

    Reads CSP_BASE_URL, CSP_API_TOKEN and CSP_DIALECT. Without --create and --delete nothing is
    changed at the provider. The exit code is 1 if something does not conform.
    """
    from sandyard.kit.observability.log import configure_logging
    from sandyard.settings import SettingsError, load_settings

    configure_logging("ERROR", "text")
    settings = load_settings()
    if settings.provider.csp_base_url is None:
        raise SettingsError("CSP_BASE_URL: must be set to the provider to check")
    if not asyncio.run(_check(settings, create=create, delete_id=delete_id)):
        raise click.ClickException(
            "The provider does not conform. The contract is in docs/provider.md."
        )


async def _check(settings: "Settings", *, create: bool, delete_id: str | None) -> bool:
    from sandyard.bootstrap.provider import provider_target
    from sandyard.tools.provider.check import ProviderCheck

    passed = True
    run = ProviderCheck(provider_target(settings.provider), create=create, delete_id=delete_id)
    async for finding in run.run():
        click.echo(_line(finding))
        passed = passed and finding.verdict != "failed"
    return passed


def _line(finding: "Finding") -> str:
    mark = {"passed": "ok  ", "failed": "FAIL", "note": "note"}[finding.verdict]
    return f"{mark}  {finding.call}: {finding.text}"

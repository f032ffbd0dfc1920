"""`sandyard jobs`."""

import asyncio
import time
from pathlib import Path

import click

_EPILOG = """\b
Examples:
  sandyard jobs run sync
  sandyard jobs run sync --force
  sandyard jobs run cleanup --data-dir /var/lib/sandyard
"""


@click.group("jobs", epilog=_EPILOG)
def command() -> None:
    """Run one job, once, for cron or EventBridge."""


@command.command("run", epilog=_EPILOG)
@click.argument("job", type=click.Choice(["sync", "cleanup", "expiry"]))
@click.option("--force", is_flag=True, help="sync: let also most of the pool go stale.")
@click.option(
    "--data-dir",
    default="./data",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The embedded engine's; a `serve` that runs on it must be asked instead.",
)
def run(job: str, force: bool, data_dir: Path) -> None:
    """Run JOB to its end, after any run of it that is under way, and print its counts as JSON."""
    from contextlib import nullcontext

    from sandyard.bootstrap import is_embedded
    from sandyard.entrypoints.cli.progress import while_working
    from sandyard.entrypoints.data_dir import locked
    from sandyard.kit.log import configure_logging
    from sandyard.settings import load_settings

    settings = load_settings()
    configure_logging(settings.server.log_level, settings.server.log_format)
    data_dir = data_dir.resolve()
    data_dir.mkdir(parents=True, exist_ok=True)
    with locked(data_dir) if is_embedded(settings) else nullcontext(), while_working(job):
        report = asyncio.run(_run(settings, job, force=force, data_dir=data_dir))
    click.echo(report)


async def _run(settings: object, job: str, *, force: bool, data_dir: Path) -> str:
    from dataclasses import asdict

    import orjson
    from prometheus_client import CollectorRegistry

    from sandyard.bootstrap import build_broker
    from sandyard.entrypoints.provider import provider_address
    from sandyard.entrypoints.worker import log_report
    from sandyard.settings import Settings

    assert isinstance(settings, Settings)  # noqa: S101 - typed late, so that --help is quick
    async with provider_address(settings.provider, data_dir) as provider:
        broker = build_broker(
            settings,
            data_dir=data_dir,
            provider_url=provider.url,
            provider_token=provider.token,
            registry=CollectorRegistry(),
        )
        try:
            await broker.pool.prepare()
            started = time.perf_counter()
            match job:
                case "sync":
                    report: object = await broker.jobs.sync(force=force)
                case "cleanup":
                    report = await broker.jobs.cleanup()
                case _:
                    report = await broker.jobs.expire()
            log_report(job, report, time.perf_counter() - started)
            return orjson.dumps(asdict(report)).decode()  # type: ignore[call-overload]
        finally:
            await broker.close()

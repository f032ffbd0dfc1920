"""`sandyard jobs`."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.options import data_dir_option

if TYPE_CHECKING:
    from sandyard.bootstrap.part import Part

_EPILOG = """\b
Examples:
  sandyard jobs run sync
  sandyard jobs run sync --force
  sandyard jobs run cleanup --data-dir /var/lib/sandyard
"""


_PARTS = {
    "sync": "broker",
    "cleanup": "broker",
    "expiry": "broker",
    "retention": "telemetry",
    "signups": "platform",
    "reconcile": "platform",
    "snapshots": "platform",
    "billing": "platform",
}
"""Whose job it is."""


@click.group("jobs", epilog=_EPILOG)
def command() -> None:
    """Run one job, once, for cron or EventBridge."""


@command.command("run", epilog=_EPILOG)
@click.argument("job", type=click.Choice([*_PARTS]))
@click.option("--force", is_flag=True, help="sync: let also most of the pool go stale.")
@data_dir_option("The embedded engine's; a `serve` that runs on it must be asked instead.")
def run(job: str, force: bool, data_dir: Path) -> None:
    """Run JOB to its end, after any run of it that is under way, and print its counts as JSON.

    \b
    sync       the Broker: compare the pool with the provider's list
    cleanup    the Broker: delete what was given up
    expiry     the Broker: take back what was forgotten
    retention  Telemetry: remove what has expired (DynamoDB does it by itself)
    signups    the Platform: remove sign-ups that nobody verified
    reconcile  the Platform: compare what should run on this machine with what does
    snapshots  the Platform: remove the files of stopped sandboxes whose time is over
    billing    the Platform: make bills of what was used
    """
    from contextlib import nullcontext

    from sandyard.bootstrap.engines import is_embedded
    from sandyard.entrypoints.cli.progress import while_working
    from sandyard.entrypoints.data_dir import locked
    from sandyard.kit.log import configure_logging
    from sandyard.settings import load_settings

    settings = load_settings()
    configure_logging(settings.server.log_level, settings.server.log_format)
    data_dir = data_dir.resolve()
    data_dir.mkdir(parents=True, exist_ok=True)
    part = _PARTS[job]
    with locked(data_dir) if is_embedded(settings, part) else nullcontext(), while_working(job):
        report = asyncio.run(_run(settings, job, part, force=force, data_dir=data_dir))
    click.echo(report)


async def _run(settings: object, job: str, part: str, *, force: bool, data_dir: Path) -> str:
    from dataclasses import asdict

    import orjson
    from prometheus_client import CollectorRegistry

    from sandyard.bootstrap.broker import BrokerPart
    from sandyard.entrypoints.parts import running_parts
    from sandyard.entrypoints.worker import log_report
    from sandyard.settings import Settings

    assert isinstance(settings, Settings)  # noqa: S101 - typed late, so that --help is quick
    alone = settings.only(part)
    async with running_parts(alone, data_dir, CollectorRegistry()) as running:
        [its_part] = running.parts
        await its_part.prepare()
        started = time.perf_counter()
        if job == "sync" and isinstance(its_part, BrokerPart):
            report: Any = await its_part.jobs.sync(force=force)
        else:
            report = await _run_scheduled(its_part, job)
        log_report(job, report, time.perf_counter() - started)
        return orjson.dumps(asdict(report)).decode()


async def _run_scheduled(part: "Part", name: str) -> Any:
    for job in part.schedule:
        if job.name.split()[0] == name and part.runner is not None:
            return await part.runner.run(job)
    raise click.UsageError(f"{part.engine} does this by itself; there is no job for it")

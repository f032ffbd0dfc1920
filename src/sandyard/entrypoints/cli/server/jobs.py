"""`sandyard jobs`."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.broker.rows import jobs
from sandyard.entrypoints.cli.calls.row import Rows
from sandyard.entrypoints.cli.options import data_dir_option
from sandyard.entrypoints.cli.progress import while_working

if TYPE_CHECKING:
    from sandyard.kit.jobs import Job, JobRunner
    from sandyard.settings import Settings
    from sandyard.wiring.part import Part
    from sandyard.wiring.spec import PartSpec

_EPILOG = """\b
Examples:
  sandyard jobs run sync
  sandyard jobs run sync --force
  sandyard jobs run cleanup --data-dir /var/lib/sandyard
"""


def _known_job(_context: click.Context, _argument: click.Parameter, name: str) -> str:
    from sandyard.bootstrap.registry import job_names

    if name not in job_names():
        raise click.BadParameter(f"There is no job {name!r}. Jobs: {', '.join(job_names())}.")
    return name


class _RunCommand(click.Command):
    """Lists the jobs of all parts, which are loaded only for its own help."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        from sandyard.bootstrap.registry import job_lines

        with formatter.section("Jobs"):
            formatter.write_dl(list(job_lines()))
        super().format_options(context, formatter)


command = Rows(
    "jobs",
    jobs,
    help="Run one job once, for cron or EventBridge; list those of a server.",
    epilog=_EPILOG,
)


@command.command("run", cls=_RunCommand, epilog=_EPILOG)
@click.argument("job", callback=_known_job)
@click.option("--force", is_flag=True, help="sync: even if most of the pool would become stale.")
@data_dir_option("Directory of the embedded databases, while no `serve` uses it.")
def run(job: str, force: bool, data_dir: Path) -> None:
    """Run JOB to its end, after a run in progress, and print its counts as JSON."""
    from sandyard.bootstrap.registry import parts_with_job
    from sandyard.entrypoints.server.data_dir import locked_if
    from sandyard.kit.observability.log import configure_logging
    from sandyard.settings import load_settings

    settings = load_settings()
    configure_logging(settings.server.log_level, settings.server.log_format)
    data_dir = data_dir.resolve()
    data_dir.mkdir(parents=True, exist_ok=True)
    parts = parts_with_job(settings, job)
    is_embedded = any(part.is_embedded(settings) for part in parts)
    with locked_if(is_embedded, data_dir), while_working(job):
        for part in parts:
            click.echo(asyncio.run(_run(settings, part, job, force=force, data_dir=data_dir)))


async def _run(
    settings: "Settings", spec: "PartSpec", name: str, *, force: bool, data_dir: Path
) -> str:
    """Build the part and its dependencies, and run its job; returns the report as JSON."""
    from contextlib import AsyncExitStack
    from dataclasses import asdict

    import orjson
    from prometheus_client import CollectorRegistry

    from sandyard.bootstrap.registry import with_needs
    from sandyard.entrypoints.server.otlp import open_tracing
    from sandyard.entrypoints.server.parts import running_parts
    from sandyard.entrypoints.server.schedule import log_report

    alone = settings.only(*with_needs(spec))
    async with AsyncExitStack() as stack:
        await open_tracing(stack, settings.otel)
        running = running_parts(alone, data_dir, CollectorRegistry())
        parts = await stack.enter_async_context(running)
        [part] = [part for part in parts if part.name == spec.name]
        runner, job = _scheduled(part, spec, name, force=force)
        for each in parts:
            await each.prepare()
        started = time.perf_counter()
        report = await runner.run(job)
        log_report(name, report, time.perf_counter() - started)
        return orjson.dumps(asdict(report)).decode()


def _scheduled(
    part: "Part", spec: "PartSpec", name: str, *, force: bool
) -> "tuple[JobRunner, Job[Any]]":
    job = next((job for job in part.schedule if job.plain_name == name), None)
    if job is None:
        known = spec.find_job(name)
        reason = (known and known.absent) or f"{part.engine} does this by itself"
        raise click.UsageError(f"{reason}; no job is needed.")
    if force and job.run_forced is None:
        raise click.UsageError(f"{name} takes no --force.")
    return part.runner, job.forced() if force else job

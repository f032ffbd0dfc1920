"""What job leases store about runs."""

from collections.abc import Mapping, Sequence

from sandyard.kit.jobs import JobLeases


async def finished(leases: JobLeases, jobs: Sequence[str]) -> Mapping[str, float]:
    """When each of the jobs last completed; jobs that never did are omitted."""
    runs = await leases.runs(jobs)
    return {job: run.finished_at for job, run in runs.items() if run.finished_at is not None}

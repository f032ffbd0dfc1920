"""From what was asked for to what a supervisor is told, with all that can be refused at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sandyard.runtime.builtin import builtin_repository
from sandyard.runtime.errors import SnapshotNotFoundError
from sandyard.runtime.local.isolation_check import python_for
from sandyard.runtime.local.records import IsolationMode, Spec
from sandyard.runtime.local.snapshots import SnapshotFolder
from sandyard.runtime.model import Files, Limits, Program, RunId
from sandyard.runtime.repositories import BUILTIN, check_url
from sandyard.runtime.requests import check_environment, check_sizes

_UIDS = range(1_900_000_000, 1_900_010_000)


@dataclass(frozen=True, slots=True)
class LocalPolicy:
    """How the local runtime goes about its work."""

    isolation: IsolationMode = "bubblewrap"
    allowed_networks: tuple[str, ...] = ()
    """Private networks from which repositories may be cloned all the same."""
    git_ca_file: Path | None = None
    prepare_timeout_sec: float = 60
    listen_timeout_sec: float = 30
    snapshot_timeout_sec: float = 120
    log_bytes: int = 1_048_576
    uids: Sequence[int] = _UIDS
    """For root: uids that nobody else on this machine has."""


def build_spec(
    run_id: RunId,
    program: Program,
    limits: Limits,
    *,
    policy: LocalPolicy,
    snapshots: SnapshotFolder,
    templates: Path,
) -> Spec:
    """Raises InvalidError or SnapshotNotFoundError if this can't be tried."""
    check_environment(program.environment)
    url = template = restore_from = None
    if isinstance(program.source, Files):
        check_sizes(program.source.contents, limits)
    else:
        url = program.source.url
    if program.snapshot_id is not None:
        if snapshots.find(program.snapshot_id) is None:
            raise SnapshotNotFoundError
        restore_from = str(snapshots.path_of(program.snapshot_id))
    elif url is not None and url.startswith(BUILTIN):
        template = str(builtin_repository(url, folder=templates))
    elif url is not None:
        check_url(url)
    return Spec(
        run_id=run_id,
        limits=limits,
        isolation=policy.isolation,
        repository_url=url,
        template=template,
        restore_from=restore_from,
        snapshot_to=str(snapshots.path_of(str(run_id))),
        environment=dict(program.environment),
        uid=None,
        python=python_for(policy.isolation),
        allowed_networks=list(policy.allowed_networks),
        git_ca_file=str(policy.git_ca_file.absolute()) if policy.git_ca_file else None,
        prepare_timeout_sec=policy.prepare_timeout_sec,
        listen_timeout_sec=policy.listen_timeout_sec,
        snapshot_timeout_sec=policy.snapshot_timeout_sec,
        log_bytes=policy.log_bytes,
    )

"""From what was asked for to what a supervisor is told, with all that can be refused at once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandyard.kit.errors import InvalidError
from sandyard.platform.runtime.errors import FilesTooLargeError, SnapshotNotFoundError
from sandyard.platform.runtime.local.builtin import builtin_repository
from sandyard.platform.runtime.local.isolation import python_for
from sandyard.platform.runtime.local.records import Isolation, Spec
from sandyard.platform.runtime.local.snapshots import SnapshotFolder
from sandyard.platform.runtime.model import Files, Limits, Owner, Program, path_parts
from sandyard.platform.runtime.repositories import BUILTIN, check_url

_UIDS = range(1_900_000_000, 1_900_010_000)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ENVIRONMENT_BYTES = 65536


@dataclass(frozen=True, slots=True)
class LocalPolicy:
    """How the local runtime goes about its work."""

    isolation: Isolation = "bubblewrap"
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
    owner: Owner,
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
        owner=owner,
        limits=limits,
        isolation=policy.isolation,
        repository_url=url,
        template=template,
        restore_from=restore_from,
        snapshot_to=str(snapshots.path_of(str(owner))),
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


def check_sizes(files: Mapping[str, bytes], limits: Limits) -> None:
    for path in files:
        path_parts(path)
    if sum(map(len, files.values())) > limits.storage_bytes:
        raise FilesTooLargeError


def check_environment(environment: Mapping[str, str]) -> None:
    are_named = all(map(_VARIABLE.fullmatch, environment))
    text = "".join((*environment, *environment.values()))
    if not are_named or "\0" in text or len(text.encode(errors="replace")) > _ENVIRONMENT_BYTES:
        raise InvalidError(
            "The environment needs plain names, values without NUL, and 64 kB at most."
        )

"""Checks of requests before a run begins, the same for all runtimes."""

import re
from collections.abc import Mapping

from sandyard.kit.errors import InvalidError
from sandyard.runtime.errors import FilesTooLargeError, InvalidRepositoryError
from sandyard.runtime.model import Files, Limits, Program, Repository, path_parts
from sandyard.runtime.repositories.builtin import builtin_files
from sandyard.runtime.repositories.git import BUILTIN, check_ref, check_url

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ENVIRONMENT_BYTES = 65536
_TOKEN = re.compile(r"[!-~]{1,2000}")


def check_sizes(files: Mapping[str, bytes], limits: Limits) -> None:
    """Raises UnsafePathError or FilesTooLargeError."""
    for path in files:
        path_parts(path)
    if sum(map(len, files.values())) > limits.storage_bytes:
        raise FilesTooLargeError


def check_program(program: Program, limits: Limits) -> None:
    """Raises InvalidError if it can't be started."""
    check_environment(program.environment)
    source = program.source
    if isinstance(source, Files):
        check_sizes(source.contents, limits)
    elif source is not None and program.snapshot_id is None and source.url.startswith(BUILTIN):
        builtin_files(source.url)
    elif source is not None and program.snapshot_id is None:
        check_url(source.url)
    if isinstance(source, Repository):
        _check_repository(source)


def _check_repository(repository: Repository) -> None:
    if repository.ref is not None:
        check_ref(repository.ref)
    if repository.folder is not None:
        path_parts(repository.folder)
    if repository.token is not None and not _TOKEN.fullmatch(repository.token):
        raise InvalidRepositoryError("A repository's token must be one line of visible characters.")


def check_environment(environment: Mapping[str, str]) -> None:
    """Raises InvalidError."""
    are_named = all(map(_VARIABLE.fullmatch, environment))
    text = "".join((*environment, *environment.values()))
    if not are_named or "\0" in text or len(text.encode(errors="replace")) > _ENVIRONMENT_BYTES:
        raise InvalidError(
            "Environment variables need plain names and values without NUL, at most 64 kB in total."
        )

"""What a runtime refuses before it begins, the same wherever programs run."""

import re
from collections.abc import Mapping

from sandyard.kit.errors import InvalidError
from sandyard.runtime.errors import FilesTooLargeError
from sandyard.runtime.model import Limits, path_parts

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ENVIRONMENT_BYTES = 65536


def check_sizes(files: Mapping[str, bytes], limits: Limits) -> None:
    """Raises UnsafePathError or FilesTooLargeError."""
    for path in files:
        path_parts(path)
    if sum(map(len, files.values())) > limits.storage_bytes:
        raise FilesTooLargeError


def check_environment(environment: Mapping[str, str]) -> None:
    """Raises InvalidError."""
    are_named = all(map(_VARIABLE.fullmatch, environment))
    text = "".join((*environment, *environment.values()))
    if not are_named or "\0" in text or len(text.encode(errors="replace")) > _ENVIRONMENT_BYTES:
        raise InvalidError(
            "The environment needs plain names, values without NUL, and 64 kB at most."
        )

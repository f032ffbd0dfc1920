"""Which repositories may be cloned, and how git is told to do it: the same wherever it runs."""

import re
from urllib.parse import urlsplit

from sandyard.runtime.errors import InvalidRepositoryError

BUILTIN = "builtin:"
GIT_ENVIRONMENT = {
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "/bin/false",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "LC_ALL": "C.UTF-8",
}

_LONGEST_URL = 2000
_URL_TEXT = re.compile(r"[!-~]+")
_CLONE = (
    *("clone", "--quiet", "--depth", "1", "--single-branch", "--no-tags"),
    *("--no-recurse-submodules", "--template="),
)
_SETTINGS = {
    "protocol.allow": "never",
    "credential.helper": "",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "http.followRedirects": "initial",
    "fetch.fsckObjects": "true",
    "transfer.fsckObjects": "true",
    "advice.detachedHead": "false",
}


def check_url(url: str) -> None:
    """Return if the address is one that may be tried, or raise InvalidRepositoryError."""
    if not _URL_TEXT.fullmatch(url) or len(url) > _LONGEST_URL:
        raise InvalidRepositoryError
    try:
        parts = urlsplit(url)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError as error:
        raise InvalidRepositoryError from error
    plain = not (parts.username or parts.password or "@" in parts.netloc or parts.fragment)
    if not (parts.scheme == "https" and parts.hostname and port_is_fine and plain):
        raise InvalidRepositoryError


def clone_command(url: str, *, protocol: str) -> list[str]:
    """Clone into the folder that it is run in, by this protocol alone."""
    settings = {**_SETTINGS, f"protocol.{protocol}.allow": "always"}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return ["git", *options, *_CLONE, "--", url, "."]


def clone_failure(stderr: str) -> str:
    """The message for what git wrote to stderr."""
    lines = stderr.splitlines()
    return f"The repository could not be cloned: {lines[-1][:300] if lines else 'git failed'}"


def clone_too_slow(timeout_sec: float) -> str:
    return f"The repository was not cloned within {timeout_sec:g} s. Is it too large?"

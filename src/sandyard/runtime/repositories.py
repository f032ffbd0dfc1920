"""Which repositories may be cloned, and the git commands for it, on every runtime."""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from sandyard.runtime.errors import (
    AddressRefusedError,
    CloneFailedError,
    CommandRefusedError,
    InvalidRepositoryError,
)
from sandyard.runtime.machine_ports import Machines
from sandyard.runtime.model import Repository, RunId
from sandyard.runtime.sessions.model import Command, Process
from sandyard.runtime.sessions.ports import Session

BUILTIN = "builtin:"
GIT_ENVIRONMENT = {
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "/bin/false",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "LC_ALL": "C.UTF-8",
}
GIT_MISSING = (
    "The environment has no git, which fetches repositories. Use an environment that has it."
)
_LONGEST_URL = 2000
_LONGEST_REF = 200
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+-]*(?:[./][A-Za-z0-9_+-]+)*")
_ASKS_FOR_LOGIN = re.compile(r"could not read Username for '([!-~]{1,300}?)'")
_ANY_USER = "x-access-token"
"""The user name that hosts accept with a token that needs none."""
_USER, _PASSWORD = "SANDYARD_GIT_USER", "SANDYARD_GIT_TOKEN"
_HELPER = f'!printf "username=%s\\npassword=%s\\n" "${_USER}" "${_PASSWORD}" #'
"""Run by a shell; git appends a word."""
_URL_TEXT = re.compile(r"[!-~]+")
_CLONE = (
    *("clone", "--quiet", "--depth", "1", "--single-branch", "--no-tags"),
    *("--no-recurse-submodules", "--template="),
)
_SETTINGS = {
    "protocol.allow": "never",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "http.followRedirects": "initial",
    "fetch.fsckObjects": "true",
    "transfer.fsckObjects": "true",
    "advice.detachedHead": "false",
}
_SOURCES = Path(__file__).parent / "templates"
_KILL = 9


def check_url(url: str) -> None:
    """Return if the URL may be tried, or raise InvalidRepositoryError."""
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


def check_ref(ref: str) -> None:
    if not _REF.fullmatch(ref) or len(ref) > _LONGEST_REF:
        raise InvalidRepositoryError("A repository's ref must be the name of a branch or a tag.")


def credentials(url: str, token: str | None) -> Mapping[str, str]:
    """The variables that give git the token, for this host only: it is in no command line and in no
    file."""
    nobody_else = {"GIT_CONFIG_KEY_0": "credential.helper", "GIT_CONFIG_VALUE_0": ""}
    if token is None:
        return {**nobody_else, "GIT_CONFIG_COUNT": "1"}
    user, _, password = token.rpartition(":")
    parts = urlsplit(url)
    return {
        **nobody_else,
        _USER: user or _ANY_USER,
        _PASSWORD: password,
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_1": f"credential.{parts.scheme}://{parts.netloc}.helper",
        "GIT_CONFIG_VALUE_1": _HELPER,
    }


def clone_command(url: str, *, protocol: str, ref: str | None = None) -> list[str]:
    """Clone into the working directory, by this protocol only."""
    chosen = [] if ref is None else ["--branch", ref]
    settings = {**_SETTINGS, f"protocol.{protocol}.allow": "always"}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return ["git", *options, *_CLONE, *chosen, "--", url, "."]


def clone_failure(stderr: str) -> str:
    if login := _ASKS_FOR_LOGIN.search(stderr):
        return (
            f"The repository could not be cloned: {login[1]} asks for a login, and has no token. "
            "The repository does not exist, or it is private: then set the secret that "
            "`repository_secret` names."
        )
    lines = stderr.splitlines()
    return f"The repository could not be cloned: {lines[-1][-300:] if lines else 'git failed'}"


def clone_too_slow(timeout_sec: float) -> str:
    return f"The repository was not cloned within {timeout_sec:g} s. Is it too large?"


def builtin_names() -> list[str]:
    return sorted(path.name for path in _SOURCES.iterdir() if path.is_dir())


def builtin_files(url: str) -> dict[str, bytes]:
    source = _source(url)
    return {path.relative_to(source).as_posix(): path.read_bytes() for path in _files(source)}


def is_bare(url: str) -> bool:
    """Whether this is a built-in template without a program: its machine waits for commands."""
    return url.startswith(BUILTIN) and not (_source(url) / "Procfile").exists()


def _source(url: str) -> Path:
    name = url.removeprefix(BUILTIN)
    if name not in builtin_names():
        known = ", ".join(BUILTIN + known for known in builtin_names())
        raise InvalidRepositoryError(f"There is no such built-in template. Known: {known}.")
    return _SOURCES / name


def _files(source: Path) -> list[Path]:
    files = (path for path in source.rglob("*") if path.is_file())
    return sorted(path for path in files if "__pycache__" not in path.parts)


async def clone(
    machines: Machines, run_id: RunId, session: Session, source: Repository, *, timeout_sec: float
) -> None:
    """Clone into the workspace. Raises CloneFailedError."""
    async with machines.egress(run_id) as egress:
        environment = GIT_ENVIRONMENT | dict(egress.environment)
        environment |= credentials(source.url, source.token)
        words = clone_command(source.url, protocol="https", ref=source.ref)
        try:
            done = await _run(session, Command(tuple(words), environment), timeout_sec=timeout_sec)
        except TimeoutError as error:
            raise CloneFailedError(clone_too_slow(timeout_sec)) from error
        except CommandRefusedError as error:
            raise CloneFailedError(GIT_MISSING) from error
        if not done.exit_code:
            return
        if (host := await egress.refused()) is not None:
            raise AddressRefusedError(
                f"The host {host!r} has a private address. Use a public host."
            )
        raise CloneFailedError(clone_failure(await _stderr(session, done)))


async def _run(session: Session, command: Command, *, timeout_sec: float) -> Process:
    """The command once it has ended. On timeout it is killed, and TimeoutError raised."""
    process = await session.processes.start(command)
    done = await session.processes.wait(process.id, timeout_sec=timeout_sec)
    if done.is_running:
        await session.processes.signal(process.id, _KILL)
        raise TimeoutError
    return done


async def _stderr(session: Session, process: Process) -> str:
    written = [
        output.data
        async for output in session.processes.output(process.id)
        if output.stream == "stderr"
    ]
    return b"".join(written).decode(errors="replace").strip()

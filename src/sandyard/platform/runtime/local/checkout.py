"""Clones a repository into the workspace, with git inside the walls."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sandyard.platform.runtime.errors import (
    AddressRefusedError,
    CloneFailedError,
    InvalidRepositoryError,
)
from sandyard.platform.runtime.local.jail import Jail, Walls
from sandyard.platform.runtime.local.spawn import run

if TYPE_CHECKING:  # ipaddress is only paid for by clones over the network
    from sandyard.platform.runtime.local.gate import Gate

BUILTIN = "builtin:"
_PROXY_PORT = 3128
_LONGEST_URL = 2000
_URL_TEXT = re.compile(r"[!-~]+")
_TEMPLATE = "/run/template.git"
_CA = "/run/ca.pem"
_GATE = "/run/gate"

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
_ENVIRONMENT = {
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "/bin/false",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "LC_ALL": "C.UTF-8",
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


async def clone_template(walls: Walls, template: Path, *, timeout_sec: float) -> None:
    source = walls.sees(template, at=_TEMPLATE)
    command = _git(f"file://{source}", "file")
    await _clone(walls, command, {}, {_TEMPLATE: template}, timeout_sec)


async def clone(
    walls: Walls,
    url: str,
    *,
    folder: Path,
    allowed_networks: Sequence[str],
    ca_file: Path | None,
    timeout_sec: float,
) -> None:
    """Clone over https through the gate. Raises CloneFailedError or AddressRefusedError."""
    from sandyard.platform.runtime.local.gate import Gate

    check_url(url)
    gate = Gate(allowed_networks=allowed_networks)
    added: dict[str, Path] = {}
    environment: dict[str, str] = {}
    if ca_file is not None:
        added[_CA] = ca_file
        environment["GIT_SSL_CAINFO"] = walls.sees(ca_file, at=_CA)
    async with _opened(gate, walls, folder) as (prefix, proxy, gates):
        environment["https_proxy"] = proxy
        command = [*prefix, *_git(url, "https")]
        try:
            await _clone(walls, command, environment, added | gates, timeout_sec)
        except CloneFailedError as error:
            if gate.refused is not None:
                raise AddressRefusedError(
                    f"The host {gate.refused!r} has a private address. Only public hosts are asked."
                ) from error
            raise


@asynccontextmanager
async def _opened(
    gate: "Gate", walls: Walls, folder: Path
) -> AsyncIterator[tuple[list[str], str, dict[str, Path]]]:
    """The gate at work: what goes before a command, the proxy it uses, and what it must see."""
    if not isinstance(walls, Jail):
        server = await asyncio.start_server(gate, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            yield [], f"http://127.0.0.1:{port}", {}
        return
    path = folder / "gate"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path.name)  # from where the supervisor is: a socket's path must be short
    path.chmod(0o666)  # the folder around it keeps everyone else out
    async with await asyncio.start_unix_server(gate, sock=listener):
        prefix = [walls.python, "-I", "-S", f"{walls.tools}/carry.py", _GATE, str(_PROXY_PORT)]
        yield prefix, f"http://127.0.0.1:{_PROXY_PORT}", {_GATE: path}


def _git(url: str, protocol: str) -> list[str]:
    settings = {**_SETTINGS, f"protocol.{protocol}.allow": "always"}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return ["git", *options, *_CLONE, "--", url, "."]


async def _clone(
    walls: Walls,
    command: Sequence[str],
    environment: dict[str, str],
    added: dict[str, Path],
    timeout_sec: float,
) -> None:
    # Inside, /etc/gitconfig is one of ours.
    system = {"GIT_CONFIG_SYSTEM": "/etc/gitconfig"} if isinstance(walls, Jail) else {}
    enclosed = walls.enclose(command, environment=_ENVIRONMENT | system | environment, added=added)
    try:
        outcome = await run(enclosed, timeout_sec=timeout_sec)
    except TimeoutError as error:
        raise CloneFailedError(
            f"The repository was not cloned within {timeout_sec:g} s. Is it too large?"
        ) from error
    if outcome.code:
        said = outcome.trouble.splitlines()
        raise CloneFailedError(
            f"The repository could not be cloned: {said[-1][:300] if said else 'git gave up'}"
        )

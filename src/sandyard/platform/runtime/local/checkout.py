"""Clones a repository into the workspace, with git inside the walls."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sandyard.platform.runtime.errors import AddressRefusedError, CloneFailedError
from sandyard.platform.runtime.local.jail import Jail, Walls
from sandyard.platform.runtime.local.spawn import run
from sandyard.platform.runtime.repositories import (
    GIT_ENVIRONMENT,
    check_url,
    clone_command,
    clone_failure,
    clone_too_slow,
)

if TYPE_CHECKING:  # ipaddress is only paid for by clones over the network
    from sandyard.platform.runtime.local.gate import Gate

_PROXY_PORT = 3128
_TEMPLATE = "/run/template.git"
_CA = "/run/ca.pem"
_GATE = "/run/gate"


async def clone_template(walls: Walls, template: Path, *, timeout_sec: float) -> None:
    source = walls.sees(template, at=_TEMPLATE)
    command = clone_command(f"file://{source}", protocol="file")
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
        command = [*prefix, *clone_command(url, protocol="https")]
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


async def _clone(
    walls: Walls,
    command: Sequence[str],
    environment: dict[str, str],
    added: dict[str, Path],
    timeout_sec: float,
) -> None:
    # Inside, /etc/gitconfig is one of ours.
    system = {"GIT_CONFIG_SYSTEM": "/etc/gitconfig"} if isinstance(walls, Jail) else {}
    enclosed = walls.enclose(
        command, environment=GIT_ENVIRONMENT | system | environment, added=added
    )
    try:
        outcome = await run(enclosed, timeout_sec=timeout_sec)
    except TimeoutError as error:
        raise CloneFailedError(clone_too_slow(timeout_sec)) from error
    if outcome.code:
        raise CloneFailedError(clone_failure(outcome.trouble))

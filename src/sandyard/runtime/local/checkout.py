"""Clones a repository into the workspace, with git in isolation."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sandyard.runtime.errors import AddressRefusedError, CloneFailedError
from sandyard.runtime.local.isolation import Isolation
from sandyard.runtime.local.jail import Jail
from sandyard.runtime.local.spawn import run
from sandyard.runtime.repositories import (
    GIT_ENVIRONMENT,
    check_url,
    clone_command,
    clone_failure,
    clone_too_slow,
)

if TYPE_CHECKING:  # ipaddress is only paid for by clones over the network
    from sandyard.runtime.local.egress_proxy import EgressProxy

_PROXY_PORT = 3128
_TEMPLATE = "/run/template.git"
_CA = "/run/ca.pem"
_PROXY_SOCKET = "/run/egress-proxy"


async def clone_template(isolation: Isolation, template: Path, *, timeout_sec: float) -> None:
    source = isolation.path_inside(template, at=_TEMPLATE)
    command = clone_command(f"file://{source}", protocol="file")
    await _clone(isolation, command, {}, {_TEMPLATE: template}, timeout_sec)


async def clone(
    isolation: Isolation,
    url: str,
    *,
    folder: Path,
    allowed_networks: Sequence[str],
    ca_file: Path | None,
    timeout_sec: float,
) -> None:
    """Clone over https through the egress proxy. Raises CloneFailedError or AddressRefusedError."""
    from sandyard.runtime.local.egress_proxy import EgressProxy

    check_url(url)
    proxy = EgressProxy(allowed_networks=allowed_networks)
    added: dict[str, Path] = {}
    environment: dict[str, str] = {}
    if ca_file is not None:
        added[_CA] = ca_file
        environment["GIT_SSL_CAINFO"] = isolation.path_inside(ca_file, at=_CA)
    async with _served(proxy, isolation, folder) as (prefix, proxy_url, sockets):
        environment["https_proxy"] = proxy_url
        command = [*prefix, *clone_command(url, protocol="https")]
        try:
            await _clone(isolation, command, environment, added | sockets, timeout_sec)
        except CloneFailedError as error:
            if proxy.refused is not None:
                raise AddressRefusedError(
                    f"The host {proxy.refused!r} has a private address. Use a public host."
                ) from error
            raise


@asynccontextmanager
async def _served(
    proxy: "EgressProxy", isolation: Isolation, folder: Path
) -> AsyncIterator[tuple[list[str], str, dict[str, Path]]]:
    """The proxy served: the prefix of a command, the URL it uses, and the sockets it must see."""
    if not isinstance(isolation, Jail):
        server = await asyncio.start_server(proxy, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            yield [], f"http://127.0.0.1:{port}", {}
        return
    path = folder / "egress-proxy"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path.name)  # from where the supervisor is: a socket's path must be short
    path.chmod(0o666)  # the folder around it keeps everyone else out
    async with await asyncio.start_unix_server(proxy, sock=listener):
        forward = [isolation.python, "-I", "-S", f"{isolation.tools}/forward.py"]
        prefix = [*forward, _PROXY_SOCKET, str(_PROXY_PORT)]
        yield prefix, f"http://127.0.0.1:{_PROXY_PORT}", {_PROXY_SOCKET: path}


async def _clone(
    isolation: Isolation,
    command: Sequence[str],
    environment: dict[str, str],
    added: dict[str, Path],
    timeout_sec: float,
) -> None:
    # Inside, /etc/gitconfig is one of ours.
    system = {"GIT_CONFIG_SYSTEM": "/etc/gitconfig"} if isinstance(isolation, Jail) else {}
    wrapped = isolation.wrap(
        command, environment=GIT_ENVIRONMENT | system | environment, added=added
    )
    try:
        outcome = await run(wrapped, timeout_sec=timeout_sec)
    except TimeoutError as error:
        raise CloneFailedError(clone_too_slow(timeout_sec)) from error
    if outcome.code:
        raise CloneFailedError(clone_failure(outcome.stderr))

"""Commands, files, ports and terminals of sandboxes, wired."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fastapi import APIRouter

from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.sandboxes.ports import SandboxVariables
from sandyard.platform.sessions.commands.http import create_commands_router
from sandyard.platform.sessions.commands.service import Commands
from sandyard.platform.sessions.files.http import create_files_router
from sandyard.platform.sessions.listening_ports.http import UrlOf, create_ports_router
from sandyard.platform.sessions.service import Sessions
from sandyard.platform.sessions.terminals.http import TerminalTokens, create_terminal_router
from sandyard.platform.sessions.terminals.service import Terminals


@dataclass(frozen=True, slots=True)
class TerminalAccess:
    """Which pages may open terminals, and the keys that sign their tokens."""

    allowed_origins: Sequence[str]
    secrets: Sequence[str] = field(repr=False)


def session_routers(
    sessions: Sessions,
    variables: SandboxVariables,
    guard: AccessGuard,
    *,
    access: TerminalAccess,
    url_of: UrlOf,
    prefix: str,
) -> Sequence[APIRouter]:
    commands = Commands(sessions, variables)
    return (
        create_commands_router(commands, guard, prefix=prefix),
        create_files_router(sessions, guard, prefix=prefix),
        create_ports_router(sessions, guard, url_of=url_of, prefix=prefix),
        create_terminal_router(
            sessions,
            Terminals(sessions, commands),
            TerminalTokens(guard, access.secrets),
            guard,
            allowed_origins=access.allowed_origins,
            prefix=prefix,
        ),
    )

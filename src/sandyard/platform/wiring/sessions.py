"""Commands, files, ports and terminals of sandboxes, wired."""

from collections.abc import Sequence

from fastapi import APIRouter

from sandyard.platform.sandboxes.ports import SandboxVariables
from sandyard.platform.sessions.commands.http import create_commands_router
from sandyard.platform.sessions.commands.service import Commands
from sandyard.platform.sessions.files.http import create_files_router
from sandyard.platform.sessions.listening_ports.http import create_ports_router
from sandyard.platform.sessions.service import Sessions
from sandyard.platform.sessions.terminals.http import TerminalTokens, create_terminal_router
from sandyard.platform.sessions.terminals.service import Terminals
from sandyard.platform.wiring.shared import PREFIX, Shared


def session_routers(
    shared: Shared, sessions: Sessions, variables: SandboxVariables
) -> Sequence[APIRouter]:
    guard = shared.guard
    commands = Commands(sessions, variables)
    return (
        create_commands_router(commands, guard, prefix=PREFIX),
        create_files_router(sessions, guard, prefix=PREFIX),
        create_ports_router(sessions, guard, url_of=shared.url_of, prefix=PREFIX),
        create_terminal_router(
            sessions,
            Terminals(sessions, commands),
            TerminalTokens(guard, shared.settings.secret("jwt_secret")),
            guard,
            allowed_origins=shared.settings.server.allowed_origins,
            prefix=PREFIX,
        ),
    )

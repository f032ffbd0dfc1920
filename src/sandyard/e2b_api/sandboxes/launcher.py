"""Starts what sandboxes of some templates need: the interpreter, a start command."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from importlib import resources

from sandyard.e2b_api.envd.paths import HOME, ROOT, ROOT_HOME, USER
from sandyard.e2b_api.errors import NotOfferedError
from sandyard.e2b_api.model import INTERPRETER_PORT
from sandyard.e2b_api.sandboxes.entrance import Sessions
from sandyard.kit.errors import UnavailableError
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.ports import SandboxVariables
from sandyard.platform.templates.model import Template
from sandyard.runtime.sessions.model import Command
from sandyard.runtime.sessions.ports import Session

_INTERPRETER = "builtin:code-interpreter-v1"
_TAG = "code-interpreter"
_AGAIN = 'while :; do "$0" -c "$1"; sleep 0.2; done'
"""Restarts the interpreter whenever it ends."""
_START = "start"
_POLL_SEC = 0.05
_READY_SEC = 60
_READY_POLL_SEC = 0.2
_STARTED_SEC = 30


class SandboxLauncher:
    """Starts the interpreter's server in sandboxes of its template, with the kernels' Python, and
    the start command of a built template.

    `kernels` is the path of the kernels in sandboxes, None if there are none.
    """

    def __init__(
        self, sessions: Sessions, variables: SandboxVariables, kernels: str | None
    ) -> None:
        self._sessions = sessions
        self._variables = variables
        self._kernels = kernels

    async def launch(self, sandbox: Sandbox, template: Template | None) -> None:
        """Return when it is ready. Raises NotOfferedError, UnavailableError."""
        if template is None:
            return
        if template.repository_url == _INTERPRETER:
            variables = await self._variables.of_sandbox(sandbox)
            await self._interpret(await self._sessions.into(sandbox), variables)
        if template.start_command is not None:
            await _start(await self._sessions.into(sandbox), template)

    async def _interpret(self, session: Session, variables: Mapping[str, str]) -> None:
        if self._kernels is None:
            raise NotOfferedError(
                "This server has no Jupyter kernels: set SANDBOX_KERNELS (see docs/e2b.md)."
            )
        await session.processes.start(_interpreter(self._kernels, variables))
        try:
            async with asyncio.timeout(_READY_SEC):
                while INTERPRETER_PORT not in await session.ports.listening():  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_SEC)
        except TimeoutError as error:
            raise UnavailableError("The code interpreter did not start in time.") from error


async def _start(session: Session, template: Template) -> None:
    """If it is not ready in time, the sandbox is used anyway."""
    user = template.default_user or USER
    session = (session.as_root() if user == ROOT else None) or session
    folder = template.working_folder or HOME
    await session.processes.start(_command(template.start_command or "", folder, user, tag=_START))
    if template.ready_command is None:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(_STARTED_SEC):
            ready = _command(template.ready_command, folder, user)
            while not await _succeeds(session, ready):  # noqa: ASYNC110 - a command inside
                await asyncio.sleep(_READY_POLL_SEC)


async def _succeeds(session: Session, command: Command) -> bool:
    process = await session.processes.start(command)
    return (await session.processes.wait(process.id)).exit_code == 0


def _command(script: str, folder: str, user: str, *, tag: str | None = None) -> Command:
    home = ROOT_HOME if user == ROOT else HOME
    own = {"HOME": home, "USER": user, "LOGNAME": user}
    return Command(("/bin/bash", "-l", "-c", script), own, folder=folder, tag=tag)


def _interpreter(kernels: str, variables: Mapping[str, str]) -> Command:
    program = resources.files("sandyard.e2b_api") / "interpreter" / "server.py"
    return Command(
        arguments=("/bin/sh", "-c", _AGAIN, f"{kernels}/bin/python", program.read_text()),
        environment={
            **variables,
            "HOME": HOME,
            "USER": "user",
            "PATH": f"{kernels}/bin:/usr/local/bin:/usr/bin:/bin",
            "MPLCONFIGDIR": "/tmp/matplotlib",  # noqa: S108 - inside
            "IPYTHONDIR": "/tmp/ipython",  # noqa: S108
            "JUPYTER_RUNTIME_DIR": "/tmp/jupyter",  # noqa: S108
        },
        folder=HOME,
        tag=_TAG,
    )

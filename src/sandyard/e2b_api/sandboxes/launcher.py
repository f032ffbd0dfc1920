"""Starts what sandboxes of some templates need: the interpreter, a start command."""

import asyncio
import posixpath
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import resources

from sandyard.e2b_api.envd.machine import account_of
from sandyard.e2b_api.envd.paths import HOME, ROOT, USER
from sandyard.e2b_api.envd.processes import OWN_TAG
from sandyard.e2b_api.errors import NotOfferedError
from sandyard.e2b_api.model import INTERPRETER_PORT
from sandyard.e2b_api.sandboxes.entrance import Sessions
from sandyard.kit.errors import UnavailableError
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.ports import SandboxVariables
from sandyard.platform.templates.model import Template
from sandyard.runtime.programs.start import START_TAG
from sandyard.runtime.sessions.model import Command, Process
from sandyard.runtime.sessions.ports import Processes, Session

_INTERPRETER = "builtin:code-interpreter-v1"
_RUN = """-c 'import os; exec(os.environ.pop("E2B_CODE"))'"""
_AGAIN = f'while :; do "$E2B_PYTHON" {_RUN}; sleep 0.2; done'
"""Restarts the interpreter whenever it ends. Its code is in the environment, so that no command
line shows or matches it."""
_POLL_SEC = 0.05
_READY_SEC = 60
_READY_POLL_SEC = 0.2
_STARTED_SEC = 30


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where a script runs, as whom, and with which variables."""

    folder: str = HOME
    user: str = USER
    variables: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, template: Template) -> "Workplace":
        folder, user = template.working_folder or HOME, template.default_user or USER
        return cls(folder, user, template.build_variables or {})

    def path(self, text: str) -> str:
        return posixpath.normpath(posixpath.join(self.folder, text))

    async def start(
        self, session: Session, script: str, *, tag: str | None = None
    ) -> tuple[Processes, Process]:
        """Raises NoSuchUserError."""
        account = await account_of(session, self.user)
        own = {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
        command = Command(
            ("/bin/bash", "-l", "-c", script),
            own | dict(self.variables),
            folder=self.folder,
            user=account.ids,
            tag=tag,
        )
        as_root = session.as_root() if account.name == ROOT else None
        processes = (as_root or session).processes
        return processes, await processes.start(command)

    async def succeeds(self, session: Session, script: str) -> bool:
        processes, process = await self.start(session, script)
        return (await processes.wait(process.id)).exit_code == 0


@dataclass(frozen=True, slots=True)
class SandboxLauncher:
    """Starts the interpreter's server in sandboxes of its template, with the kernels' Python, and
    the start command of a built template."""

    sessions: Sessions
    variables: SandboxVariables
    kernels: str | None
    """The path of the kernels in sandboxes."""

    async def launch(self, sandbox: Sandbox, template: Template | None) -> None:
        """Return when it is ready; what goes on from before a pause is not started again. Raises
        NotOfferedError, UnavailableError."""
        if template is None:
            return
        is_interpreter = template.repository_url == _INTERPRETER
        if not is_interpreter and template.start_command is None:
            return
        session = await self.sessions.into(sandbox)
        known = await session.processes.list()
        tags = {each.tag for each in known if each.exit_code is None}
        if is_interpreter and OWN_TAG not in tags:
            await self._interpret(session, await self.variables.of_sandbox(sandbox))
        if template.start_command is not None and START_TAG not in tags:
            await _start(session, template)

    async def _interpret(self, session: Session, variables: Mapping[str, str]) -> None:
        if self.kernels is None:
            raise NotOfferedError(
                "This server has no Jupyter kernels: set SANDBOX_KERNELS (see docs/e2b.md)."
            )
        await session.processes.start(_interpreter(self.kernels, variables))
        try:
            async with asyncio.timeout(_READY_SEC):
                while INTERPRETER_PORT not in await session.ports.listening():  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_SEC)
        except TimeoutError as error:
            raise UnavailableError("The code interpreter did not start in time.") from error


async def _start(session: Session, template: Template) -> None:
    """If it is not ready in time, the sandbox is used anyway."""
    at = Workplace.of(template)
    await at.start(session, template.start_command or "", tag=START_TAG)
    if template.ready_command is None:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(_STARTED_SEC):
            while not await at.succeeds(session, template.ready_command):  # noqa: ASYNC110
                await asyncio.sleep(_READY_POLL_SEC)


def _interpreter(kernels: str, variables: Mapping[str, str]) -> Command:
    program = resources.files("sandyard.e2b_api") / "interpreter" / "server.py"
    return Command(
        arguments=("/bin/sh", "-c", _AGAIN),
        environment={
            **variables,
            "E2B_PYTHON": f"{kernels}/bin/python",
            "E2B_CODE": program.read_text(),
            "HOME": HOME,
            "USER": "user",
            "PATH": f"{kernels}/bin:/usr/local/bin:/usr/bin:/bin",
            "MPLCONFIGDIR": "/tmp/matplotlib",  # noqa: S108 - inside
            "IPYTHONDIR": "/tmp/ipython",  # noqa: S108
            "JUPYTER_RUNTIME_DIR": "/tmp/jupyter",  # noqa: S108
        },
        folder=HOME,
        tag=OWN_TAG,
    )

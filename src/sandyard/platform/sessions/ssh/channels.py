"""A channel of an SSH connection: a shell, a command, SFTP or scp."""

import logging
from functools import partial
from typing import Any

from asyncssh.sftp import MIN_SFTP_VERSION

from sandyard.kit.errors import SandyardError
from sandyard.platform.sessions.ssh.access import SandboxAccess
from sandyard.platform.sessions.ssh.commands import FAILED, SshProcess, run_command
from sandyard.platform.sessions.ssh.files import SandboxSftp

logger = logging.getLogger(__name__)

_SFTP = "sftp"


class Channel(SshProcess):
    def __init__(self) -> None:
        super().__init__(_run, self._files, MIN_SFTP_VERSION, allow_scp=True)

    def subsystem_requested(self, subsystem: str) -> bool:
        return subsystem == _SFTP

    def _files(self, channel: Any) -> SandboxSftp:
        return SandboxSftp(channel, is_gone=partial(self.at_eof, None))


async def _run(process: SshProcess) -> None:
    access: SandboxAccess = process.get_extra_info("access")
    try:
        await run_command(access, process)
    except SandyardError as error:
        process.stderr.write(f"{error.message}\r\n".encode())
        process.exit(FAILED)
    except Exception:
        logger.exception("ssh channel")
        process.exit(FAILED)

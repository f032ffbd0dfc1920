"""Snapshots and forks: the files of a running sandbox, from which others start."""

import re
import secrets
from collections.abc import Sequence

from sandyard.e2b_api.model import SandboxView
from sandyard.e2b_api.sandboxes.service import E2bSandboxes
from sandyard.e2b_api.templates.finder import TemplateFinder, TemplateName
from sandyard.kit.errors import SandyardError
from sandyard.platform.access.principal import Principal
from sandyard.platform.sandboxes.archives.service import SandboxArchives
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.templates.model import DEFAULT_TAG, NewTemplate, Template
from sandyard.platform.templates.service import new_id

_CATEGORY = "snapshot"
UNNAMED = re.compile(r"snapshot-[0-9a-f]{16}")
"""The generated names of unnamed snapshots."""
MOST_FORKS = 100


class Snapshots:
    """Memory and processes are not saved. A snapshot is a template of the account."""

    def __init__(
        self, sandboxes: E2bSandboxes, templates: TemplateFinder, archives: SandboxArchives
    ) -> None:
        self._sandboxes = sandboxes
        self._templates = templates
        self._archives = archives

    async def create(self, sandbox_name: str, name: str | None, *, by: Principal) -> Template:
        """Saves it under this name, which may be that of an earlier one. Raises
        SandboxNotFoundError if it does not run."""
        given = TemplateName.new(name or f"snapshot-{secrets.token_hex(8)}")
        sandbox = await self._sandboxes.running(sandbox_name, by=by)
        wanted = _template(given.name, sandbox, await self._sandboxes.template_of(sandbox, by=by))
        archive_id = await self._archives.save(sandbox)
        tags = [given.tag or DEFAULT_TAG]
        return await self._templates.keep(wanted, archive_id, tags, by=by, new_id=new_id())

    async def fork(
        self, sandbox_name: str, *, count: int, timeout_sec: int, by: Principal
    ) -> Sequence[SandboxView | SandyardError]:
        """`count` sandboxes that start with its files; for each, the sandbox or the error."""
        sandbox = await self._sandboxes.running(sandbox_name, by=by)
        archive_id = await self._archives.save(sandbox)
        try:
            return [
                await self._fork(sandbox, archive_id, timeout_sec=timeout_sec, by=by)
                for _ in range(count)
            ]
        finally:
            await self._archives.drop([archive_id])

    async def _fork(
        self, sandbox: Sandbox, archive_id: str, *, timeout_sec: int, by: Principal
    ) -> SandboxView | SandyardError:
        try:
            return await self._sandboxes.copy(sandbox, archive_id, timeout_sec=timeout_sec, by=by)
        except SandyardError as error:
            return error


def _template(name: str, sandbox: Sandbox, base: Template | None) -> NewTemplate:
    """If its base was deleted, it is a machine without a program."""
    return NewTemplate(
        name=name,
        description=f"The files of {sandbox.sandbox_id}.",
        category=_CATEGORY,
        language="any" if base is None else base.language,
        min_cpu_required=sandbox.cpu_spec,
        min_memory_required=sandbox.memory_spec,
        is_official=False,
        is_public=False,
        repository_url="builtin:base" if base is None else base.repository_url,
        tags=None,
        network=sandbox.network,
        environment=sandbox.environment,
        made_from=sandbox.sandbox_id,
        start_command=None if base is None else base.start_command,
        ready_command=None if base is None else base.ready_command,
        working_folder=None if base is None else base.working_folder,
        default_user=None if base is None else base.default_user,
        build_variables=None if base is None else base.build_variables,
        archived_by=sandbox.sandbox_id,
    )

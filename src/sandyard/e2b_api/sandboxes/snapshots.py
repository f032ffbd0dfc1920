"""Snapshots and forks: the files of a running sandbox, from which others start."""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sandyard.e2b_api.model import SandboxView
from sandyard.e2b_api.sandboxes.service import E2bSandboxes
from sandyard.e2b_api.templates.finder import OF_BUILD, TemplateFinder, TemplateName
from sandyard.kit.errors import SandyardError
from sandyard.kit.idempotency import is_repeat, new_id
from sandyard.platform.access.principal import Principal
from sandyard.platform.sandboxes.archives.service import SandboxArchives
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.templates.model import DEFAULT_TAG, NewTemplate, Template

_CATEGORY = "snapshot"
UNNAMED = re.compile(r"snapshot-[0-9a-f]{16}")
"""The generated names of unnamed snapshots."""
_OF_BASE = ("language", "repository_url", *OF_BUILD)


@dataclass(frozen=True, slots=True)
class Snapshots:
    """With memory and processes, if the sandbox's isolation can keep them. A snapshot is a template
    of the account."""

    sandboxes: E2bSandboxes
    templates: TemplateFinder
    archives: SandboxArchives

    async def create(
        self, sandbox_name: str, name: str | None, *, has_memory: bool | None, by: Principal
    ) -> Template:
        """Saves it under this name, which may be that of an earlier one. Raises
        SandboxNotFoundError if it does not run."""
        template_id = new_id("tpl")
        if is_repeat() and (
            made := await self.templates.find_by_id(template_id, account_id=by.account_id)
        ):
            return made
        given = TemplateName.new(name or f"snapshot-{secrets.token_hex(8)}")
        sandbox = await self.sandboxes.running(sandbox_name, by=by)
        wanted = _template(given.name, sandbox, await self.sandboxes.template_of(sandbox, by=by))
        archive_id = await self._save(sandbox, has_memory=has_memory)
        tags = [given.tag or DEFAULT_TAG]
        return await self.templates.keep(wanted, archive_id, tags, by=by, template_id=template_id)

    async def fork(
        self, sandbox_name: str, *, count: int, timeout_sec: int, by: Principal
    ) -> Sequence[SandboxView | SandyardError]:
        """`count` sandboxes that start with its files; for each, the sandbox or the error."""
        sandbox = await self.sandboxes.running(sandbox_name, by=by)
        archive_id = await self._save(sandbox)
        try:
            return [
                await self._fork(sandbox, archive_id, timeout_sec=timeout_sec, by=by)
                for _ in range(count)
            ]
        finally:
            await self.archives.drop([archive_id])

    async def _save(self, sandbox: Sandbox, *, has_memory: bool | None = None) -> str:
        """Raises MemoryNotKeptError."""
        is_kept = sandbox.can_keep_memory and has_memory is not False
        return await self.archives.save(sandbox, has_memory=is_kept)

    async def _fork(
        self, sandbox: Sandbox, archive_id: str, *, timeout_sec: int, by: Principal
    ) -> SandboxView | SandyardError:
        try:
            return await self.sandboxes.copy(sandbox, archive_id, timeout_sec=timeout_sec, by=by)
        except SandyardError as error:
            return error


def _template(name: str, sandbox: Sandbox, base: Template | None) -> NewTemplate:
    """If its base was deleted, it is a machine without a program."""
    of_base: dict[str, Any] = {each: getattr(base, each, None) for each in _OF_BASE}
    if base is None:
        of_base |= {"language": "any", "repository_url": "builtin:base"}
    return NewTemplate(
        name=name,
        description=f"The files of {sandbox.sandbox_id}.",
        category=_CATEGORY,
        min_cpu_required=sandbox.cpu_spec,
        min_memory_required=sandbox.memory_spec,
        is_official=False,
        is_public=False,
        tags=None,
        network=sandbox.network,
        environment=sandbox.environment,
        isolation=sandbox.isolation,
        made_from=sandbox.sandbox_id,
        archived_by=sandbox.sandbox_id,
        **of_base,
    )

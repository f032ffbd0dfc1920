"""Machines that are ready for the next sandboxes of a template."""

from dataclasses import dataclass

from sandyard.kit.sizes import GIGABYTE
from sandyard.platform.sandboxes.model import DEFAULT_CPU, DEFAULT_MEMORY_GB
from sandyard.platform.sandboxes.node import SandboxNode
from sandyard.platform.sandboxes.ports import WarmTemplates
from sandyard.platform.sandboxes.runs.program import default_program
from sandyard.platform.templates.model import Template
from sandyard.runtime.model import Limits, Program, RunId, Running
from sandyard.runtime.programs.warm import WarmPool, WarmRuns


@dataclass(slots=True)
class WarmReport:
    started: int = 0


class WarmSandboxes:
    """On this node. They belong to no account, quota or bill until one is handed out."""

    def __init__(self, node: SandboxNode, templates: WarmTemplates, runs: WarmRuns) -> None:
        self._node = node
        self._templates = templates
        self._runs = runs

    async def keep(self) -> WarmReport:
        """Maintain as many as the templates say, and end those of no template."""
        pools = [self._pool(template) for template in await self._templates.warm_templates()]
        return WarmReport(started=await self._runs.keep(pools))

    async def take(
        self, template: Template | None, program: Program, limits: Limits, *, to: RunId
    ) -> Running | None:
        """A warm machine for a sandbox, if it needs nothing that a warm one lacks: its own files,
        its variables, another size."""
        if template is None or not template.warm_machines:
            return None
        pool = self._pool(template)
        wanted = WarmPool(pool.name, program, limits, count=0)
        has_own = (
            program.snapshot_id or program.environment or program.secrets.bound or program.mounts
        )
        if has_own or not program.is_launched or wanted.version != pool.version:
            return None
        return await self._runs.take(pool, to=to, limits=limits, program=program)

    async def close(self) -> None:
        await self._runs.close()

    def _pool(self, template: Template) -> WarmPool:
        memory_gb = max(DEFAULT_MEMORY_GB, template.min_memory_required)
        limits = Limits(
            cpu=max(DEFAULT_CPU, template.min_cpu_required),
            memory_bytes=int(memory_gb * GIGABYTE),
            processes=self._node.processes,
            storage_bytes=self._node.storage_bytes,
            max_running_sec=0,
        )
        return WarmPool(
            template.template_id, default_program(template), limits, template.warm_machines
        )

"""E2B's API, wired to the Platform's sandboxes."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from starlette.types import ASGIApp

from sandyard.bootstrap.addresses import access_tokens, sandbox_domain
from sandyard.e2b_api.app import E2bApi
from sandyard.e2b_api.builds.http import BuildCalls
from sandyard.e2b_api.builds.service import Builds
from sandyard.e2b_api.control import ControlApi
from sandyard.e2b_api.envd.app import Envd
from sandyard.e2b_api.hosts import E2bHosts
from sandyard.e2b_api.model import MAX_TIMEOUT_SEC
from sandyard.e2b_api.sandboxes.access import SandboxAccess
from sandyard.e2b_api.sandboxes.entrance import Entrance
from sandyard.e2b_api.sandboxes.http import SandboxCalls
from sandyard.e2b_api.sandboxes.launcher import SandboxLauncher
from sandyard.e2b_api.sandboxes.metrics import SandboxMetrics
from sandyard.e2b_api.sandboxes.service import E2bSandboxes
from sandyard.e2b_api.snapshots.http import SnapshotCalls
from sandyard.e2b_api.snapshots.service import Snapshots
from sandyard.e2b_api.templates.finder import TemplateFinder
from sandyard.e2b_api.templates.http import TemplateCalls
from sandyard.e2b_api.tokens import SandboxTokens, UploadTokens
from sandyard.gateway.model import PageScope
from sandyard.gateway.service import TokenIssue
from sandyard.kit.sizes import GIGABYTE
from sandyard.platform.access.sql import SqlCredentialLookup
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.runs.recorder import run_id_of
from sandyard.platform.wiring.part import PlatformPart
from sandyard.runtime.local.supervisor.machine_process import KERNELS_INSIDE
from sandyard.runtime.model import Sample
from sandyard.settings import SandboxSettings, Settings
from sandyard.wiring.part import Part
from sandyard.wiring.spec import get_part


def build_e2b_api(
    settings: Settings, parts: Sequence[Part], *, hosts: E2bHosts, ports: ASGIApp | None
) -> E2bApi:
    """For a process that serves sandboxes; `ports` serves the programs that listen inside them."""
    platform = get_part(parts, PlatformPart)
    issued = SandboxTokens(settings.secret("gateway_secret"))
    templates = _templates(platform)
    control = _control(settings, platform, issued, templates)
    envd = _envd(settings, platform, issued, templates)
    return E2bApi(control, envd, hosts=hosts, ports=ports)


def _templates(platform: PlatformPart) -> TemplateFinder:
    return TemplateFinder(platform.templates, platform.wired.archives)


def _control(
    settings: Settings, platform: PlatformPart, issued: SandboxTokens, templates: TemplateFinder
) -> ControlApi:
    wired, clock = platform.wired, platform.clock
    disk_mb = int(settings.sandboxes.sandbox_storage_gb * GIGABYTE) >> 20
    sandboxes = E2bSandboxes(
        wired.sandboxes,
        wired.deadlines,
        platform.variables,
        templates,
        SandboxLauncher(wired.sessions, platform.variables, _kernels(settings.sandboxes)),
        clock=clock,
        disk_mb=disk_mb,
    )
    access = _access(settings, platform, issued)
    uploads = UploadTokens(settings.secret("gateway_secret"))
    builds = _builds(settings, platform, sandboxes, templates)
    metrics = SandboxMetrics(wired.measurements, _sampler(platform), clock=clock)
    snapshots = Snapshots(sandboxes, templates, wired.archives)
    build_calls = BuildCalls(builds, templates, uploads)
    endpoints = (
        *SandboxCalls(sandboxes, metrics, access, clock=clock).endpoints(),
        *TemplateCalls(templates, disk_mb=disk_mb).endpoints(),
        *build_calls.endpoints(),
        *SnapshotCalls(snapshots, templates, access).endpoints(),
    )
    return ControlApi(platform.guard, endpoints, build_calls.public_routes())


def _builds(
    settings: Settings, platform: PlatformPart, sandboxes: E2bSandboxes, templates: TemplateFinder
) -> Builds:
    wired = platform.wired
    return Builds(
        sandboxes,
        templates,
        wired.archives,
        wired.sessions,
        wired.uploads,
        clock=platform.clock,
        most_bytes=settings.server.max_upload_bytes,
        disk_bytes=int(settings.sandboxes.sandbox_storage_gb * GIGABYTE),
    )


def _access(settings: Settings, platform: PlatformPart, issued: SandboxTokens) -> SandboxAccess:
    domain = sandbox_domain(settings)
    authority = domain.name if domain.port is None else f"{domain.name}:{domain.port}"
    issue = TokenIssue(
        {"sbx": platform.wired.targets},
        SqlCredentialLookup(platform.database),
        access_tokens(settings),
        domain,
        clock=platform.clock,
    )
    return SandboxAccess(issued, _TrafficTokens(issue), domain=authority)


class _TrafficTokens:
    """The gateway's tokens, valid for as long as a sandbox may last."""

    def __init__(self, issue: TokenIssue) -> None:
        self._issue = issue

    async def issue(self, sandbox_id: str, *, account_id: str) -> str:
        issued = await self._issue.issue(
            sandbox_id,
            account_id=account_id,
            scopes=[PageScope.VIEW],
            lasts=timedelta(seconds=MAX_TIMEOUT_SEC),
        )
        return issued.token


def _kernels(chosen: SandboxSettings) -> str | None:
    """The path of the kernels inside sandboxes."""
    if chosen.sandbox_kernels is None or chosen.sandbox_runtime != "local":
        return None
    return KERNELS_INSIDE if chosen.sandbox_isolation == "bubblewrap" else chosen.sandbox_kernels


def _sampler(platform: PlatformPart) -> Callable[[Sandbox], Awaitable[Sample]]:
    return lambda sandbox: platform.wired.runtime.sample(run_id_of(sandbox))


def _envd(
    settings: Settings, platform: PlatformPart, issued: SandboxTokens, templates: TemplateFinder
) -> Envd:
    wired = platform.wired
    entrance = Entrance(
        wired.store,
        wired.sessions,
        wired.targets,
        platform.variables,
        issued,
        templates,
        _sampler(platform),
        clock=platform.clock,
        node=wired.node,
        disk_bytes=int(settings.sandboxes.sandbox_storage_gb * GIGABYTE),
    )
    return Envd(entrance, most_bytes=settings.server.max_upload_bytes)

"""E2B's API, wired to the Platform's sandboxes."""

import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from starlette.types import ASGIApp

from sandyard.bootstrap.addresses import access_tokens, sandbox_domain
from sandyard.e2b_api.app import E2bApi
from sandyard.e2b_api.builds.http import BuildCalls
from sandyard.e2b_api.builds.records import BuildFolder
from sandyard.e2b_api.builds.service import Builds
from sandyard.e2b_api.control import ControlApi
from sandyard.e2b_api.envd.app import Envd
from sandyard.e2b_api.hosts import E2bHosts
from sandyard.e2b_api.links import UnnamedLinks
from sandyard.e2b_api.model import MAX_TIMEOUT_SEC
from sandyard.e2b_api.sandboxes.entrance import Entrance, SandboxMetrics
from sandyard.e2b_api.sandboxes.http import SandboxAccess, SandboxCalls
from sandyard.e2b_api.sandboxes.launcher import SandboxLauncher
from sandyard.e2b_api.sandboxes.service import E2bSandboxes
from sandyard.e2b_api.sandboxes.snapshots import Snapshots
from sandyard.e2b_api.templates.finder import TemplateFinder
from sandyard.e2b_api.templates.http import TemplateCalls
from sandyard.e2b_api.tokens import SandboxTokens, UploadTokens
from sandyard.e2b_api.volumes.contents import VolumeContentCalls, VolumeTokens
from sandyard.e2b_api.volumes.http import VolumeCalls
from sandyard.gateway.model import PageScope
from sandyard.gateway.tokens import TokenIssue
from sandyard.kit.http.client_address import ClientAddress
from sandyard.kit.rate_limit import RateLimit
from sandyard.kit.sizes import GIGABYTE
from sandyard.platform.access.principal import Principal
from sandyard.platform.access.sql import SqlCredentialLookup
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.node import run_id_of
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
    templates = TemplateFinder(platform.templates, platform.wired.archives)
    control = _control(settings, platform, issued, templates)
    envd = _envd(settings, platform, issued, templates)
    return E2bApi(control, _with_link_limit(settings, envd), hosts=hosts, ports=ports)


def _with_link_limit(settings: Settings, envd: Envd) -> UnnamedLinks:
    rate, storage_url = (
        settings.platform.auth_rate_limit_per_address,
        settings.broker.rate_limit_storage_url,
    )
    refusals = RateLimit(rate, storage_url, name="unnamed links", is_sliding=False)
    address_of = ClientAddress(settings.server.proxy_networks).of
    return UnnamedLinks(envd, refusals, address_of=address_of)


def _control(
    settings: Settings, platform: PlatformPart, issued: SandboxTokens, templates: TemplateFinder
) -> ControlApi:
    wired, clock = platform.wired, platform.clock
    disk_mb = int(settings.sandboxes.sandbox_storage_gb * GIGABYTE) >> 20
    sandboxes = E2bSandboxes(
        wired.sandboxes,
        wired.deadlines,
        wired.programs,
        platform.variables,
        templates,
        SandboxLauncher(wired.sessions, platform.variables, _kernels(settings.sandboxes)),
        clock,
        disk_mb,
    )
    access = _access(settings, platform, issued)
    uploads = UploadTokens(settings.secret("gateway_secret"))
    builds = Builds(
        sandboxes,
        templates,
        wired.archives,
        wired.sessions,
        wired.uploads,
        BuildFolder(wired.builds),
        clock,
        settings.server.max_upload_bytes,
        int(settings.sandboxes.sandbox_storage_gb * GIGABYTE),
        wired.storage,
        wired.images,
    )
    metrics = SandboxMetrics(wired.measurements, _sampler(platform), clock=clock)
    snapshots = Snapshots(sandboxes, templates, wired.archives)
    build_calls = BuildCalls(builds, templates, uploads)
    tokens = VolumeTokens(issued, SqlCredentialLookup(platform.database), clock)
    contents = VolumeContentCalls(
        wired.volume_contents, tokens, platform.guard, settings.server.max_upload_bytes
    )
    endpoints = (
        *SandboxCalls(sandboxes, metrics, snapshots, access, clock).endpoints(),
        *TemplateCalls(templates, disk_mb).endpoints(),
        *build_calls.endpoints(),
        *VolumeCalls(wired.volumes, disk_mb << 20, tokens).endpoints(),
    )
    return ControlApi(
        platform.guard,
        endpoints,
        (*build_calls.public_routes(), *contents.routes()),
        most_bytes=settings.server.max_body_bytes,
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

    async def traffic_token(sandbox_id: str, by: Principal) -> str:
        """The gateway's, valid for as long as a sandbox may last."""
        lasts = timedelta(seconds=MAX_TIMEOUT_SEC)
        scopes = [PageScope.VIEW]
        made = await issue.issue(sandbox_id, by=by, scopes=scopes, lasts=lasts)
        return made.token

    return SandboxAccess(issued, traffic_token, authority, platform.clock)


def _kernels(chosen: SandboxSettings) -> str | None:
    """The path of the kernels inside sandboxes."""
    if chosen.sandbox_kernels is None or chosen.sandbox_runtime != "local":
        return None
    return KERNELS_INSIDE if chosen.sandbox_isolation != "none" else chosen.sandbox_kernels


def _sampler(platform: PlatformPart) -> Callable[[Sandbox], Awaitable[Sample]]:
    return lambda sandbox: platform.wired.runtime.sample(run_id_of(sandbox))


def _envd(
    settings: Settings, platform: PlatformPart, issued: SandboxTokens, templates: TemplateFinder
) -> Envd:
    wired = platform.wired
    entrance = Entrance(
        wired.store,
        SqlCredentialLookup(platform.database),
        wired.sessions,
        wired.targets,
        platform.variables,
        issued,
        templates,
        _sampler(platform),
        platform.clock,
        wired.node,
        int(settings.sandboxes.sandbox_storage_gb * GIGABYTE),
    )
    return Envd(
        entrance,
        upload_bytes=settings.server.max_upload_bytes,
        message_bytes=settings.server.max_body_bytes,
        streams=settings.platform.streams_per_account,
        has_watchers="PROMETHEUS_MULTIPROC_DIR" not in os.environ,  # which all workers share
    )

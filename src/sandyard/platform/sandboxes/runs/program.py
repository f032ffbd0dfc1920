"""Builds the runtime's description of a sandbox's program."""

from collections.abc import Mapping

from sandyard.kit.sizes import GIGABYTE
from sandyard.platform.sandboxes.model import DEFAULT_NETWORK, DEFAULT_OPTIONS, RunOptions, Sandbox
from sandyard.platform.sandboxes.network.traffic_rules import TrafficRules
from sandyard.platform.templates.model import IMAGE_PROGRAM, Template
from sandyard.runtime.model import (
    ImageProgram,
    IsolationMode,
    Limits,
    Mount,
    Program,
    Repository,
    StartCommand,
    stronger,
)
from sandyard.runtime.secrets_model import NO_SECRETS, MachineSecrets
from sandyard.runtime.sessions.model import WORKSPACE


def program_of(
    sandbox: Sandbox,
    template: Template | None,
    variables: Mapping[str, str],
    options: RunOptions = DEFAULT_OPTIONS,
    secrets: MachineSecrets = NO_SECRETS,
    mounts: tuple[Mount, ...] = (),
) -> Program:
    """Its template may be deleted once it has its own files."""
    return Program(
        _source(sandbox, template, variables),
        sandbox.latest_snapshot_id,
        variables,
        network=sandbox.network,
        root=sandbox.environment,
        archive_id=sandbox.archive_id,
        rules=TrafficRules.of(sandbox).egress,
        policy=sandbox.program_policy or "on_failure",
        is_launched=options.is_launched,
        restores_memory=options.restores_memory,
        isolation=isolation_of(sandbox, template),
        keeps_memory=sandbox.keeps_memory,
        secrets=secrets,
        mounts=mounts,
    )


def isolation_of(sandbox: Sandbox, template: Template | None) -> IsolationMode | None:
    """The weakest that it may have: what its template asks for, and what it has had."""
    asked = None if template is None else template.isolation
    return asked if sandbox.isolation is None else stronger(sandbox.isolation, asked)


def default_program(template: Template) -> Program:
    repository = Repository(
        template.repository_url, ref=template.repository_ref, folder=template.repository_folder
    )
    is_image = template.repository_url == IMAGE_PROGRAM
    return Program(
        ImageProgram() if is_image else None if template.is_empty else repository,
        network=template.network or DEFAULT_NETWORK,
        root=template.environment,
        archive_id=template.archive_of(None),
        isolation=template.isolation,
    )


def limits_of(sandbox: Sandbox, processes: int, storage_bytes: int) -> Limits:
    return Limits(
        cpu=sandbox.cpu_spec,
        memory_bytes=int(sandbox.memory_spec * GIGABYTE),
        processes=processes,
        storage_bytes=storage_bytes,
        max_running_sec=sandbox.max_running_seconds,
    )


def _source(
    sandbox: Sandbox, template: Template | None, variables: Mapping[str, str]
) -> Repository | ImageProgram | StartCommand | None:
    """Sandboxes made by E2B's API have no policy: that starts the command."""
    if template is not None and template.start_command and sandbox.program_policy is not None:
        user = template.default_user
        return StartCommand(template.start_command, template.working_folder or WORKSPACE, user)
    if template is not None and template.is_empty:
        return None
    if template is not None and template.repository_url == IMAGE_PROGRAM:
        return ImageProgram()
    if template is None:
        return Repository("", folder=sandbox.folder)
    secret = template.secret_for(sandbox.owner_account_id)
    return Repository(
        template.repository_url,
        ref=template.repository_ref,
        folder=sandbox.folder,
        token=variables.get(secret) if secret else None,
    )

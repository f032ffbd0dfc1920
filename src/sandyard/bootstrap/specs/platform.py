"""The Platform's spec."""

import asyncio
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sandyard.wiring.job_specs.platform import JOBS
from sandyard.wiring.spec import BuildContext, PartSpec, WelcomeContext, imported, lazy

if TYPE_CHECKING:
    from sandyard.platform.wiring.part import PlatformPart
    from sandyard.settings import Settings
    from sandyard.wiring.engines import SqlEngine


async def _build(context: BuildContext) -> "PlatformPart":
    build = await asyncio.to_thread(imported, "sandyard.platform.wiring.part:build_platform")
    from sandyard.bootstrap.addresses import sandbox_domain

    part: PlatformPart = build(
        context.settings,
        data_dir=context.data_dir,
        url_of=sandbox_domain(context.settings).url_of,
        clock=context.clock,
        engine=context.engines.get("platform"),
    )
    return part


def _engine(settings: "Settings", data_dir: Path) -> "SqlEngine":
    from sandyard.kit.clock import SystemClock
    from sandyard.platform.wiring.commands import open_platform_engine
    from sandyard.platform.wiring.identity import has_identity_provider
    from sandyard.wiring.engines import e2b_key

    has_identity_provider(settings)
    if settings.sandboxes.sandbox_runtime == "e2b":
        e2b_key(settings.e2b, needed_for="SANDBOX_RUNTIME=e2b")
    return open_platform_engine(settings, data_dir, SystemClock())


def _missing(settings: "Settings") -> Sequence[str]:
    from sandyard.runtime.local.server.requirements import missing_for_sandboxes

    if settings.sandboxes.sandbox_runtime != "local":
        return ()
    return missing_for_sandboxes(settings.sandboxes.sandbox_isolation)


def _notes(context: WelcomeContext) -> Mapping[str, str]:
    from sandyard.platform.wiring.accounts import OUTBOX

    limits = _limits(context) if context.settings.sandboxes.sandbox_runtime == "local" else {}
    if context.settings.platform.smtp_url is not None:
        return limits
    return {"mails": f"files in {context.data_dir / OUTBOX}", **limits}


def _limits(context: WelcomeContext) -> Mapping[str, str]:
    """How the limits of sandboxes are enforced on this machine."""
    from sandyard.kit.clock import SystemClock
    from sandyard.platform.wiring.local_runtime import local_options
    from sandyard.runtime.errors import LimitsMissingError
    from sandyard.runtime.local.server.enforcement import find_enforcement

    try:
        options = local_options(context.settings.sandboxes)
        enforcement = find_enforcement(options, context.data_dir, SystemClock().now())
    except LimitsMissingError as error:
        return {"limits": f"sandboxes can't start. {error.message}"}
    return {label: f"in sandboxes: {text}" for label, text in enforcement.describe().items()}


def _examples(context: WelcomeContext) -> Iterator[str]:
    sign_up = {"email": "me@example.com", "username": "someone", "password": "change this now"}
    yield "Sign up, then read the mail:"
    yield (
        f"  curl {context.url}/api/v1/auth/signup -H 'Content-Type: application/json'"
        f" -d {shlex.quote(json.dumps(sign_up))}"
    )


PLATFORM = PartSpec(
    "platform",
    _build,
    settings=("platform", "sandboxes", "e2b"),
    routers=(
        "sandyard.platform.accounts.http",
        "sandyard.platform.accounts.identity.http",
        "sandyard.platform.api_keys.http",
        "sandyard.platform.accounts.admin.http",
        "sandyard.platform.account_data.http",
        "sandyard.platform.quotas.http",
        "sandyard.platform.projects.http",
        "sandyard.platform.templates.http",
        "sandyard.platform.notifications.http",
        "sandyard.platform.variables.http",
        "sandyard.platform.events.http",
        "sandyard.platform.sandboxes.http",
        "sandyard.platform.sandboxes.admin_http",
        "sandyard.platform.sessions.commands.http",
        "sandyard.platform.sessions.files.http",
        "sandyard.platform.sessions.listening_ports.http",
        "sandyard.platform.sessions.terminals.http",
        "sandyard.platform.measurements.http",
        "sandyard.platform.usage.http",
        "sandyard.platform.billing.http",
    ),
    jobs=JOBS,
    secrets=("jwt_secret", "gateway_secret", "secrets_key"),
    engine=_engine,
    migrations=partial(imported, "sandyard.platform.schema.migrations:MIGRATIONS"),
    verify=lazy("sandyard.platform.wiring.commands:verify_platform_data"),
    log=lazy("sandyard.platform.wiring.commands:open_platform_log"),
    missing=_missing,
    notes=_notes,
    examples=_examples,
)

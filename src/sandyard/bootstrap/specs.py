"""The specs of the parts, which import a part only when it is used."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sandyard.wiring import job_specs
from sandyard.wiring.spec import BuildContext, PartSpec, WelcomeContext, get_part, imported, lazy

if TYPE_CHECKING:
    from sandyard.bootstrap.previews import PreviewsPart
    from sandyard.broker.wiring.part import BrokerPart
    from sandyard.platform.wiring.part import PlatformPart
    from sandyard.settings import Settings
    from sandyard.telemetry.wiring.part import TelemetryPart

_OWN_SIMULATION = "CSP_BASE_URL: must be set for --workers; each would simulate its own"


async def _build_broker(context: BuildContext) -> "BrokerPart":
    from sandyard.bootstrap.copies import OUTWARD_JOBS, is_copy
    from sandyard.bootstrap.other_logs import other_logs
    from sandyard.bootstrap.provider import open_provider
    from sandyard.bootstrap.registry import selected_parts
    from sandyard.broker.wiring.part import build_broker

    others = [spec for spec in selected_parts(context.settings) if spec.name != "broker"]
    provider = await context.stack.enter_async_context(
        open_provider(context.settings, context.data_dir, context.listen)
    )
    part = build_broker(
        context.settings,
        data_dir=context.data_dir,
        provider_address=provider,
        registry=context.registry,
        other_logs=other_logs(context.settings, context.data_dir, others),
        clock=context.clock,
    )
    if is_copy(context.data_dir):
        part.schedule = [job for job in part.schedule if job.plain_name not in OUTWARD_JOBS]
    return part


async def _check_settings_broker(settings: "Settings", data_dir: Path) -> None:
    from sandyard.bootstrap.copies import is_copy
    from sandyard.bootstrap.provider import open_pool_provider

    if is_copy(data_dir):
        return
    async with open_pool_provider(settings, data_dir) as own:
        await own.require()


def _one_process_broker(settings: "Settings") -> str | None:
    return _OWN_SIMULATION if settings.provider.csp_base_url is None else None


def _notes_broker(context: WelcomeContext) -> Mapping[str, str]:
    from sandyard.broker.wiring.part import BrokerPart

    return {"provider": get_part(context.parts, BrokerPart).provider_address.description}


def _examples_broker(context: WelcomeContext) -> Iterator[str]:
    url = context.url + context.settings.broker.api_base_path
    track, admin = context.bearer("broker_api_token"), context.bearer("broker_admin_token")
    yield "Lease a sandbox, get the pool's counts:"
    yield f'  curl -X POST {url}/allocate {track} -H "X-Track-ID: demo"'
    yield f"  curl {url}/admin/stats {admin}"


BROKER = PartSpec(
    "broker",
    _build_broker,
    settings=("broker", "provider", "oauth", "delivery", "dynamo"),
    jobs=job_specs.BrokerJobSpecs.all(),
    secrets=("broker_api_token", "broker_admin_token"),
    store_setting="pool_store",
    migrations=partial(imported, "sandyard.broker.stores.sql:MIGRATIONS"),
    tables=lazy("sandyard.broker.wiring.pool:open_pool_table"),
    contents=lazy("sandyard.broker.wiring.contents:open_broker_contents"),
    verify=lazy("sandyard.broker.wiring.part:verify_broker"),
    log=lazy("sandyard.broker.wiring.pool:open_broker_log"),
    check_settings=_check_settings_broker,
    one_process=_one_process_broker,
    notes=_notes_broker,
    examples=_examples_broker,
)


async def _build_telemetry(context: BuildContext) -> "TelemetryPart":
    from sandyard.telemetry.wiring.part import TelemetryPart

    return TelemetryPart(
        context.settings,
        data_dir=context.data_dir,
        registry=context.registry,
        clock=context.clock,
    )


def _examples_telemetry(context: WelcomeContext) -> Iterator[str]:
    url, admin = f"{context.url}/telemetry/v1", context.bearer("telemetry_admin_token")
    yield "Create a device key, list the devices:"
    yield f"  curl -X POST {url}/api-keys {admin}"
    yield f"  curl {url}/devices {admin}"


TELEMETRY = PartSpec(
    "telemetry",
    _build_telemetry,
    settings=("telemetry", "dynamo"),
    jobs=job_specs.TelemetryJobSpecs.all(),
    secrets=("telemetry_admin_token", "api_key_pepper"),
    store_setting="telemetry_store",
    migrations=partial(imported, "sandyard.telemetry.stores.sql:MIGRATIONS"),
    tables=lazy("sandyard.telemetry.wiring.part:open_telemetry_tables"),
    contents=lazy("sandyard.telemetry.wiring.contents:open_telemetry_contents"),
    verify=lazy("sandyard.telemetry.wiring.part:verify_telemetry"),
    log=lazy("sandyard.telemetry.wiring.part:open_telemetry_log"),
    examples=_examples_telemetry,
)


async def _build_platform(context: BuildContext) -> "PlatformPart":
    from sandyard.bootstrap.addresses import sandbox_domain
    from sandyard.platform.wiring.identity import has_identity_provider
    from sandyard.platform.wiring.part import PlatformPart
    from sandyard.wiring.engines import e2b_key

    has_identity_provider(context.settings)
    if context.settings.sandboxes.sandbox_runtime == "e2b":
        e2b_key(context.settings.e2b, needed_for="SANDBOX_RUNTIME=e2b")
    return PlatformPart(
        context.settings,
        data_dir=context.data_dir,
        url_of=sandbox_domain(context.settings).url_of,
        clock=context.clock,
    )


def _missing_platform(settings: "Settings") -> Sequence[str]:
    from sandyard.platform.wiring.local_runtime import local_options
    from sandyard.runtime.local.server.isolation_check import missing_for_sandboxes

    if settings.sandboxes.sandbox_runtime != "local":
        return ()
    return missing_for_sandboxes(local_options(settings.sandboxes))


def _notes_platform(context: WelcomeContext) -> Mapping[str, str]:
    from sandyard.platform.wiring.accounts import OUTBOX

    limits = _limits(context) if context.settings.sandboxes.sandbox_runtime == "local" else {}
    if context.settings.platform.smtp_url is not None:
        return limits
    return {"mails": f"files in {context.data_dir / OUTBOX}", **limits}


def _limits(context: WelcomeContext) -> Mapping[str, str]:
    """How the limits of sandboxes are enforced on this machine."""
    from sandyard.kit.clock import SystemClock
    from sandyard.platform.wiring.local_runtime import local_options, runtime_folder
    from sandyard.runtime.errors import IsolationMissingError, LimitsMissingError
    from sandyard.runtime.local.server.enforcement import find_enforcement
    from sandyard.runtime.local.server.isolation_check import missing_isolation
    from sandyard.runtime.local.server.isolation_choice import with_isolation

    options = local_options(context.settings.sandboxes)
    for line in missing_isolation(options):
        return {"limits": f"sandboxes can't start. {line}"}
    now = SystemClock().now()
    try:
        options = with_isolation(options, runtime_folder(context.data_dir), now)
        enforcement = find_enforcement(options, context.data_dir, now)
    except (IsolationMissingError, LimitsMissingError) as error:
        return {"limits": f"sandboxes can't start. {error.message}"}
    return {label: f"in sandboxes: {text}" for label, text in enforcement.describe().items()}


def _examples_platform(context: WelcomeContext) -> Iterator[str]:
    sign_up = {"email": "me@example.com", "username": "someone", "password": "change this now"}
    yield "Sign up, then read the mail:"
    yield (
        f"  curl {context.url}/api/v1/auth/signup -H 'Content-Type: application/json'"
        f" -d {shlex.quote(json.dumps(sign_up))}"
    )


PLATFORM = PartSpec(
    "platform",
    _build_platform,
    settings=("platform", "sandboxes", "e2b", "kubernetes"),
    jobs=job_specs.PlatformJobSpecs.all(),
    secrets=("jwt_secret", "gateway_secret", "secrets_key"),
    is_for_tenants=True,
    migrations=partial(imported, "sandyard.platform.schema.migrations:MIGRATIONS"),
    verify=lazy("sandyard.platform.wiring.commands:verify_platform_data"),
    log=lazy("sandyard.platform.wiring.commands:open_platform_log"),
    missing=_missing_platform,
    notes=_notes_platform,
    examples=_examples_platform,
)


async def _build_previews(context: BuildContext) -> "PreviewsPart":
    from sandyard.bootstrap.previews import build_previews
    from sandyard.platform.wiring.part import PlatformPart

    platform = get_part(context.parts, PlatformPart)
    return build_previews(
        context.settings, platform, data_dir=context.data_dir, clock=context.clock
    )


def _missing_previews(settings: "Settings") -> Sequence[str]:
    from sandyard.platform.wiring.local_runtime import local_options
    from sandyard.runtime.local.server.isolation_check import missing_for_previews

    if settings.previews.preview_provider != "local":
        return ()
    return missing_for_previews(local_options(settings.sandboxes))


PREVIEWS = PartSpec(
    "previews",
    _build_previews,
    settings=("previews", "e2b"),
    needs=("platform",),
    is_for_tenants=True,
    jobs=job_specs.PreviewsJobSpecs.all(),
    migrations=partial(imported, "sandyard.previews.stores.schema:MIGRATIONS"),
    verify=lazy("sandyard.bootstrap.previews:verify_previews"),
    log=lazy("sandyard.bootstrap.previews:open_previews_log"),
    missing=_missing_previews,
)

"""Telemetry's spec."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from sandyard.wiring.job_specs.telemetry import JOBS
from sandyard.wiring.spec import BuildContext, PartSpec, WelcomeContext, imported, lazy

if TYPE_CHECKING:
    from sandyard.telemetry.wiring.part import TelemetryPart


async def _build(context: BuildContext) -> "TelemetryPart":
    from sandyard.telemetry.wiring.part import build_telemetry

    return build_telemetry(
        context.settings,
        data_dir=context.data_dir,
        registry=context.registry,
        clock=context.clock,
    )


def _examples(context: WelcomeContext) -> Iterator[str]:
    url, admin = f"{context.url}/telemetry/v1", context.bearer("telemetry_admin_token")
    yield "Create a device key, list the devices:"
    yield f"  curl -X POST {url}/api-keys {admin}"
    yield f"  curl {url}/devices {admin}"


TELEMETRY = PartSpec(
    "telemetry",
    _build,
    settings=("telemetry", "dynamo"),
    routers=(
        "sandyard.telemetry.http.devices",
        "sandyard.telemetry.http.readings",
        "sandyard.telemetry.http.operators",
        "sandyard.telemetry.http.events",
    ),
    jobs=JOBS,
    secrets=("telemetry_admin_token", "api_key_pepper"),
    store_setting="telemetry_store",
    migrations=partial(imported, "sandyard.telemetry.stores.sql:MIGRATIONS"),
    tables=lazy("sandyard.telemetry.wiring.part:open_telemetry_tables"),
    verify=lazy("sandyard.telemetry.wiring.part:verify_telemetry"),
    log=lazy("sandyard.telemetry.wiring.part:open_telemetry_log"),
    examples=_examples,
)

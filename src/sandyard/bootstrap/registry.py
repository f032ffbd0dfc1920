"""The list of parts, and which of them PARTS selects."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sandyard.bootstrap.specs import BROKER, PLATFORM, PREVIEWS, TELEMETRY
from sandyard.wiring.spec import PartSpec

if TYPE_CHECKING:
    from sandyard.settings import Settings

PARTS: tuple[PartSpec, ...] = (BROKER, TELEMETRY, PLATFORM, PREVIEWS)
"""In dependency order."""


def get_spec(name: str) -> PartSpec:
    return next(spec for spec in PARTS if spec.name == name)


def selected_parts(settings: "Settings") -> tuple[PartSpec, ...]:
    """The parts that PARTS names, or all; raises SettingsError if PARTS is invalid."""
    if settings.server.parts is None:
        return PARTS
    names = settings.server.part_names
    if mistake := _mistake(names):
        from sandyard.settings import SettingsError

        raise SettingsError(f"PARTS: {mistake}")
    return tuple(spec for spec in PARTS if spec.name in names)


def _mistake(names: tuple[str, ...]) -> str | None:
    known = [spec.name for spec in PARTS]
    if not names or not set(names) <= set(known):
        return f"must be some of {', '.join(known)}, comma-separated"
    for spec in PARTS:
        missing = [need for need in spec.needs if need not in names]
        if spec.name in names and missing:
            return f"{spec.name} needs {', '.join(missing)} in the same process: name both"
    return None


def tenant_parts(settings: "Settings") -> tuple[PartSpec, ...]:
    """The parts of the tenants' process: none if there is nothing else to serve."""
    chosen = selected_parts(settings)
    apart = tuple(spec for spec in chosen if spec.is_for_tenants)
    return apart if len(apart) < len(chosen) else ()


def embedded_parts(settings: "Settings") -> tuple[PartSpec, ...]:
    return tuple(spec for spec in selected_parts(settings) if spec.is_embedded(settings))


def with_needs(spec: PartSpec) -> tuple[str, ...]:
    """The names of the part and of all its dependencies."""
    needed = {name for need in spec.needs for name in with_needs(get_spec(need))}
    return tuple(each.name for each in PARTS if each.name in needed | {spec.name})


def job_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys(job.name for spec in PARTS for job in spec.jobs))


def job_lines() -> Iterator[tuple[str, str]]:
    for spec in PARTS:
        for job in spec.jobs:
            yield job.name, f"{spec.name}: {job.does}"


def parts_with_job(settings: "Settings", name: str) -> tuple[PartSpec, ...]:
    """The parts with a job of this name: only those that PARTS selects, if there is one."""
    chosen = tuple(spec for spec in selected_parts(settings) if spec.find_job(name))
    return chosen or tuple(spec for spec in PARTS if spec.find_job(name))

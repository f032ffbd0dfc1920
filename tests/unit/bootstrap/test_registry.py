"""The registry of parts: names, needs, secrets, jobs, and that it imports nothing heavy."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from sandyard.bootstrap.registry import (
    PARTS,
    embedded_parts,
    get_spec,
    job_lines,
    job_names,
    parts_with_job,
    selected_parts,
    tenant_parts,
    with_needs,
)
from sandyard.entrypoints.server.parts import running_parts
from sandyard.settings import Settings, SettingsError, describe, load_settings
from sandyard.wiring.part import Part
from sandyard.wiring.spec import PartSpec, imported


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name, _ in describe():
        monkeypatch.delenv(name, raising=False)
    loaded = load_settings()
    provider = loaded.provider.model_copy(update={"csp_base_url": "http://127.0.0.1:9"})
    return replace(loaded, provider=provider)


@pytest.mark.parametrize("spec", PARTS, ids=lambda spec: spec.name)
def test_what_a_spec_names_for_later_is_there(spec: PartSpec) -> None:
    given = (getattr(spec, each.name) for each in fields(spec))
    for later in (each for each in given if isinstance(each, partial)):
        assert imported(*later.args) is not None


def changed(settings: Settings, section: str, **values: Any) -> Settings:
    return replace(settings, **{section: getattr(settings, section).model_copy(update=values)})


def names(settings: Settings) -> list[str]:
    return [spec.name for spec in selected_parts(settings)]


def test_names_are_unique_and_each_part_comes_after_what_it_needs() -> None:
    known: list[str] = []
    for spec in PARTS:
        assert spec.name not in known
        assert set(spec.needs) <= set(known)
        known.append(spec.name)


def test_a_part_has_each_of_its_jobs_once() -> None:
    for spec in PARTS:
        jobs = [job.name for job in spec.jobs]
        assert len(set(jobs)) == len(jobs)
        assert all(job.does and " " not in job.name for job in spec.jobs)
    assert [name for name, _ in job_lines()] == [job.name for s in PARTS for job in s.jobs]


def test_every_secret_is_a_setting_of_its_part(settings: Settings) -> None:
    for spec in PARTS:
        for secret in spec.secrets:
            assert getattr(spec.own_settings(settings), secret) is None, "no default"


def test_every_section_of_the_settings_is_of_the_server_or_some_part() -> None:
    known = {each.name for each in fields(Settings)}
    assert {name for spec in PARTS for name in spec.settings} == known - {
        "server",
        "secrets",
        "otel",
    }
    own = [spec.settings[0] for spec in PARTS]
    assert len(set(own)) == len(PARTS), "each has one of its own"


def test_migrations_are_under_the_part_s_name() -> None:
    schemas = {spec.name: spec.migrations().part for spec in PARTS}
    assert all(name == schema for name, schema in schemas.items())


@pytest.mark.parametrize(
    ("parts", "selected"),
    [
        (None, ["broker", "telemetry", "platform", "previews"]),
        ("telemetry", ["telemetry"]),
        (" previews, platform,", ["platform", "previews"]),
    ],
)
def test_parts_selects_in_the_registry_s_order(
    settings: Settings, parts: str | None, selected: list[str]
) -> None:
    assert names(changed(settings, "server", parts=parts)) == selected


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ("previews", "PARTS: previews needs platform"),
        ("broker,fleet", "PARTS: must be some of broker, telemetry, platform, previews"),
        (",", "PARTS: must be some of"),
    ],
)
def test_wrong_parts_are_a_line(settings: Settings, parts: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        selected_parts(changed(settings, "server", parts=parts))


def test_a_part_is_embedded_unless_its_engine_is_shared(settings: Settings) -> None:
    assert embedded_parts(settings) == PARTS
    on_dynamodb = changed(settings, "broker", pool_store="dynamodb")
    assert [spec.name for spec in embedded_parts(on_dynamodb)] == names(settings)[1:]
    url = SecretStr("postgresql://h/d")
    assert embedded_parts(changed(settings, "server", database_url=url)) == ()


def test_tenants_have_a_process_of_their_own_beside_other_parts(settings: Settings) -> None:
    assert [spec.name for spec in tenant_parts(settings)] == ["platform", "previews"]
    for alone in ("platform", "platform,previews", "broker,telemetry"):
        assert tenant_parts(changed(settings, "server", parts=alone)) == ()


def test_a_job_is_run_with_the_parts_that_its_part_needs(settings: Settings) -> None:
    assert with_needs(get_spec("previews")) == ("platform", "previews")
    assert with_needs(get_spec("broker")) == ("broker",)
    assert parts_with_job(settings, "sync") == (get_spec("broker"),)
    elsewhere = changed(settings, "server", parts="telemetry")
    assert parts_with_job(elsewhere, "sync") == (get_spec("broker"),), "whatever PARTS selects"


async def built(settings: Settings, data_dir: Path) -> Sequence[Part]:
    """Every part, built as a process does and closed again."""
    async with running_parts(settings, data_dir, CollectorRegistry()) as parts:
        return parts


async def test_every_job_of_every_part_is_known_to_jobs_run(
    settings: Settings, tmp_path: Path
) -> None:
    for part in await built(settings, tmp_path):
        spec = get_spec(part.name)
        scheduled = [job.plain_name for job in part.schedule]
        assert sorted(scheduled) == sorted(job.name for job in spec.jobs), spec.name
        assert part.runner is not None
        assert set(scheduled) <= set(job_names())


async def test_every_router_of_every_part_is_of_a_module_for_http_of_that_part(
    settings: Settings, tmp_path: Path
) -> None:
    for part in await built(settings, tmp_path):
        for router in part.routers:
            own = [
                module
                for module in _modules(router)
                if module.startswith(f"sandyard.{part.name}.") and "http" in module
            ]
            assert own, (part.name, _modules(router))


def _modules(router: APIRouter) -> set[str]:
    return {getattr(route, "endpoint").__module__ for route in router.routes}  # noqa: B009 - not on every kind of route


async def test_a_job_that_an_engine_makes_needless_says_so(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    elsewhere = changed(settings, "telemetry", telemetry_store="dynamodb")
    elsewhere = changed(elsewhere, "previews", preview_provider="e2b")
    elsewhere = changed(elsewhere, "sandboxes", sandbox_runtime="e2b")
    elsewhere = changed(elsewhere, "e2b", e2b_api_key=SecretStr("e2b_x"))
    absent = {
        job.name
        for part in await built(elsewhere, tmp_path)
        for job in get_spec(part.name).jobs
        if job.name not in [each.plain_name for each in part.schedule]
    }
    assert absent == {job.name for spec in PARTS for job in spec.jobs if job.absent}


def test_help_and_the_registry_import_no_part_and_no_framework() -> None:
    program = (
        "import sys\n"
        "from sandyard.entrypoints.cli import sandyard\n"
        "for words in (['--help'], ['jobs', 'run', '--help']):\n"
        "    sandyard.main(words, standalone_mode=False)\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    imported = set(run.stderr.split())
    assert "sandyard.bootstrap.registry" in imported
    for module in ("fastapi", "sqlalchemy", "alembic", "pydantic", "prometheus_client"):
        assert module not in imported
    for spec in PARTS:
        assert f"sandyard.{spec.name}" not in imported
        assert spec.name in run.stdout

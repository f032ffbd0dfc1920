"""The templates as a whole: valid, without findings, and as they are in the repository."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.aws.templates import NAMES, SNAPSHOTS, STACKS, Synthesised, run_python, snapshot

INTENDED = ("W3010", "W3005")
"""Zones are named, so that templates are made offline; the CDK tells some dependencies twice."""
MOST_BYTES, MOST_RESOURCES = 1_000_000, 500
"""Of a template that CloudFormation takes."""


def test_cfn_lint_finds_nothing(synthesised: Synthesised) -> None:
    lint = Path(sys.executable).with_name("cfn-lint")
    paths = sorted(synthesised.folder.glob("*.template.json"))
    assert len(paths) == len(STACKS)
    ignored = [option for each in INTENDED for option in ("--ignore-checks", each)]
    done = subprocess.run(
        [lint, *ignored, "--template", *paths],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_security_rules_find_nothing(synthesised: Synthesised) -> None:
    """AwsSolutions of cdk-nag, with a reason for each finding that is meant to be so."""
    assert _violations(synthesised.folder) == set()


def test_a_finding_of_the_security_rules_ends_the_synthesis(tmp_path: Path) -> None:
    code = (
        "from aws_cdk import Stack, aws_s3\n"
        "from deploy.aws.app import new_app\n"
        "app = new_app()\n"
        "aws_s3.Bucket(Stack(app, 'careless'), 'Bucket')\n"
        "app.synth()\n"
    )
    done = run_python("-c", code, folder=tmp_path)
    assert done.returncode == 1
    assert {"AwsSolutions-S1", "AwsSolutions-S10"} <= _violations(tmp_path)


def _violations(folder: Path) -> set[str]:
    report = json.loads((folder / "validation-report.json").read_text())
    plugins = report["pluginReports"]
    return {found["ruleName"] for each in plugins for found in each["violations"]}


@pytest.mark.parametrize("name", STACKS)
def test_a_template_is_as_it_was_reviewed(synthesised: Synthesised, name: str) -> None:
    """After a change that is meant: `make aws-snapshots`."""
    assert snapshot(synthesised.json(name)) == (SNAPSHOTS / f"{name}.json").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_cloudformation_takes_a_template_of_this_size(synthesised: Synthesised, name: str) -> None:
    assert synthesised.path(name).stat().st_size < MOST_BYTES
    assert len(synthesised.json(name)["Resources"]) < MOST_RESOURCES


@pytest.mark.parametrize("name", NAMES)
def test_nothing_has_to_be_built_or_uploaded_first(synthesised: Synthesised, name: str) -> None:
    """But for the template itself: no files, no images of other tools."""
    assets = json.loads(
        synthesised.path(name)
        .with_name(synthesised.path(name).name.replace(".template.", ".assets."))
        .read_text()
    )
    assert assets["dockerImages"] == {}
    assert [each for each in assets["files"].values() if "template" not in str(each)] == []

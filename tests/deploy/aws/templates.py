"""Synthesis as an operator does it, and what the templates then hold."""

import fcntl
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy.aws.config import Deployment, load_deployment

if TYPE_CHECKING:
    from aws_cdk.assertions import Template

ROOT = Path(__file__).parents[3]
CONFIGURATIONS = ROOT / "deploy" / "aws" / "configurations"
NAMES = ("small", "production", "platform")
REGISTRY = "registry"
STACKS = (REGISTRY, *NAMES)
ENVIRONMENT = {"AWS_ACCOUNT_ID": "111111111111"}
SNAPSHOTS = Path(__file__).with_name("snapshots")
QUIET = {
    "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1",
    "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
}


@dataclass(frozen=True)
class Synthesised:
    folder: Path
    """With what the CDK wrote."""

    def path(self, name: str) -> Path:
        stack = "sandyard-registry" if name == REGISTRY else deployment(name).name
        return self.folder / f"{stack}.template.json"

    def json(self, name: str) -> dict[str, Any]:
        template: dict[str, Any] = json.loads(self.path(name).read_text())
        return template

    @cache  # noqa: B019 - one lives as long as the run
    def template(self, name: str) -> "Template":
        os.environ.update(QUIET)
        from aws_cdk.assertions import Template  # starts node: only where it is needed

        return Template.from_json(self.json(name))

    def of_type(self, name: str, kind: str) -> dict[str, dict[str, Any]]:
        """The properties of all resources of a type, by their logical ids."""
        return {
            each: resource.get("Properties", {})
            for each, resource in self.json(name)["Resources"].items()
            if resource["Type"] == kind
        }

    def one(self, name: str, kind: str, **wanted: Any) -> dict[str, Any]:
        [found] = [
            properties
            for properties in self.of_type(name, kind).values()
            if wanted.items() <= properties.items()
        ]
        return found


def deployment(name: str) -> Deployment:
    return load_deployment(CONFIGURATIONS / f"{name}.toml", ENVIRONMENT)


def synthesise(folder: Path) -> Synthesised:
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made" / "manifest.json").exists():
            _run(folder / "made")
    return Synthesised(folder / "made")


def _run(folder: Path) -> None:
    files = [str(CONFIGURATIONS / f"{name}.toml") for name in NAMES]
    done = run_python("-m", "deploy.aws", *files, folder=folder)
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]


def run_python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """From the root of the repository; the CDK writes to the folder."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT | QUIET | {"CDK_OUTDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )


def snapshot(template: dict[str, Any]) -> str:
    """As it is in the repository: without what only tools read."""
    resources = {
        name: {key: value for key, value in resource.items() if key != "Metadata"}
        for name, resource in template["Resources"].items()
    }
    return json.dumps(template | {"Resources": resources}, indent=1, sort_keys=True) + "\n"


def write_snapshots(folder: Path) -> None:
    made = synthesise(folder)
    SNAPSHOTS.mkdir(exist_ok=True)
    for name in STACKS:
        (SNAPSHOTS / f"{name}.json").write_text(snapshot(made.json(name)))


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        write_snapshots(Path(scratch))

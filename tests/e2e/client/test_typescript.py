"""The TypeScript client: generated from a server's document, compiled, and run against it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.servers.processes import ServerProcess

CLIENT = Path(__file__).parents[3] / "clients" / "typescript"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy to build in, with the tools that `make` installed."""
    folder = tmp_path / "typescript"
    ignored = shutil.ignore_patterns("node_modules", "dist", "schema.ts")
    shutil.copytree(CLIENT, folder, ignore=ignored)
    (folder / "node_modules").symlink_to(CLIENT / "node_modules")
    return folder


def test_it_is_typed_by_the_document_and_takes_no_lease_twice(
    package: Path, whole_server: ServerProcess
) -> None:
    environment = os.environ | {
        "SANDYARD_URL": whole_server.url,
        "SANDYARD_TOKEN": whole_server.track_token,
        "SANDYARD_ADMIN_TOKEN": whole_server.admin_token,
    }
    for command in (
        ["npx", "openapi-typescript", f"{whole_server.url}/openapi.json", "-o", "src/schema.ts"],
        ["npx", "tsc"],
        ["node", "--test", "dist/test/lease.test.js", "dist/test/retrying.test.js"],
    ):
        ran = subprocess.run(
            command, cwd=package, env=environment, capture_output=True, text=True, timeout=150
        )
        assert ran.returncode == 0, f"{command}: {ran.stdout[-3000:]}{ran.stderr[-3000:]}"
    assert "# pass 9" in ran.stdout

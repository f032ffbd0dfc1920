"""The Python and TypeScript clients behave alike: both run `clients/scenarios.json`.

The TypeScript one is generated from the server's document, compiled, and run; both are installed
outside the checkout from what is published.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sandyard_client import AsyncClient, Client, Connection

from tests.e2e.client.conftest import QUICKLY
from tests.e2e.client.lossy_proxy import Fate, LossyProxy
from tests.e2e.client.restarting import RestartingServer
from tests.e2e.client.scenarios import FILE, SCENARIOS, Runner
from tests.support.servers.users import Person, signed_up

PARTS = "broker,telemetry,platform,previews"
CLIENTS = Path(__file__).parents[3] / "clients"
NAMES = [each["name"] for each in SCENARIOS]


@pytest.fixture(scope="module")
def ann(backend: RestartingServer) -> Person:
    return signed_up(backend.process, "ann", mail=1)


@pytest.fixture(scope="module")
def login(ann: Person) -> str:
    return ann.headers["Authorization"].removeprefix("Bearer ")


@pytest.fixture(scope="module")
def package(backend: RestartingServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the TypeScript client, built with the tools that `make` installed."""
    folder = tmp_path_factory.mktemp("built") / "typescript"
    source = CLIENTS / "typescript"
    ignored = shutil.ignore_patterns("node_modules", "dist", "schema.ts")
    shutil.copytree(source, folder, ignore=ignored)
    (folder / "node_modules").symlink_to(source / "node_modules")
    document = f"{backend.url}/openapi.json"
    run(folder, "npm", "run", "--silent", "generate", "--", document, "-o", "src/schema.ts")
    run(folder, "npm", "run", "--silent", "build")
    return folder


def run(folder: Path, *words: str, environment: Mapping[str, str] | None = None) -> str:
    ran = subprocess.run(
        words,
        cwd=folder,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, f"{words}: {ran.stdout[-3000:]}{ran.stderr[-3000:]}"
    return ran.stdout


@pytest.fixture
def known() -> dict[str, str]:
    """What the steps can name: a text that no other run has, and an SSH key."""
    public = Ed25519PrivateKey.generate().public_key()
    key = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return {"run": uuid4().hex[:10], "public_key": key}


@pytest.fixture(params=SCENARIOS, ids=NAMES)
def scenario(request: pytest.FixtureRequest, proxy: LossyProxy) -> dict[str, Any]:
    """Whose faults the proxy has."""
    scenario: dict[str, Any] = request.param
    faults = scenario.get("faults", {})
    if "first" in faults:
        proxy.first(faults["first"], path=faults["path"])
    if "every" in faults:
        proxy.choose = losing(faults["every"], faults["path"])
    return scenario


def losing(every: int, path: str) -> Any:
    """The answer to each request of this number below the path is lost."""
    number = itertools.count(1)

    def choose(_method: str, asked: str) -> Fate:
        return "drop" if path in asked and next(number) % every == 0 else "pass"

    return choose


async def test_the_python_client(
    scenario: dict[str, Any], proxy: LossyProxy, login: str, known: dict[str, str]
) -> None:
    with Client(Connection(proxy.url, api_key=login), retries=QUICKLY) as client:
        await Runner(client, known).run(scenario["steps"])


async def test_the_python_client_with_asyncio(
    scenario: dict[str, Any], proxy: LossyProxy, login: str, known: dict[str, str]
) -> None:
    async with AsyncClient(Connection(proxy.url, api_key=login), retries=QUICKLY) as client:
        await Runner(client, known).run(scenario["steps"])


def test_the_typescript_client(
    scenario: dict[str, Any],
    package: Path,
    proxy: LossyProxy,
    login: str,
    known: dict[str, str],
) -> None:
    number = str(SCENARIOS.index(scenario))
    arguments = (str(FILE), number, known["run"], known["public_key"])
    environment = {"SANDYARD_URL": proxy.url, "SANDYARD_API_KEY": login}
    run(package, "node", "dist/test/scenarios.js", *arguments, environment=environment)


def test_every_noun_is_in_a_scenario() -> None:
    calls = {step["call"] for each in SCENARIOS for step in each["steps"]}
    for noun in json.loads((CLIENTS / "python/nouns.json").read_text()):
        name = "".join(f"_{char.lower()}" if char.isupper() else char for char in noun).lstrip("_")
        names = {"variables": ("env", "project_variables")}.get(name, (name,))
        assert any(call == each or call.startswith(f"{each}.") for call in calls for each in names)


def test_the_typescript_client_leases_no_sandbox_twice(
    package: Path, backend: RestartingServer
) -> None:
    environment = {
        "SANDYARD_URL": backend.url,
        "SANDYARD_TOKEN": backend.process.track_token,
        "SANDYARD_ADMIN_TOKEN": backend.process.admin_token,
    }
    files = ("dist/test/lease.test.js", "dist/test/retrying.test.js")
    assert "# pass 9" in run(package, "node", "--test", *files, environment=environment)


TYPESCRIPT = """
import { connect, Platform, Sandbox, Lease } from "sandyard-client";
const api = connect({ url: process.env.SANDYARD_URL, token: process.env.SANDYARD_API_KEY });
const names = [];
for await (const each of new Platform(api).projects.list()) names.push(each.name);
console.log(names.length > 0, typeof Sandbox.create, typeof Lease.acquire);
"""
PYTHON = """
import sandyard_client, sys
with sandyard_client.Client() as client:
    print(len(list(client.platform.projects.list())) > 0, sandyard_client.__file__)
"""


def test_what_is_published_is_installed_and_used_outside_the_checkout(
    package: Path, backend: RestartingServer, login: str, tmp_path: Path
) -> None:
    environment = {"SANDYARD_URL": backend.url, "SANDYARD_API_KEY": login}
    modules = CLIENTS / "typescript" / "node_modules"
    needed: Sequence[Path] = (package, *(modules / f"openapi-{each}" for each in NEEDED))
    for folder in needed:
        run(tmp_path, "npm", "pack", "--silent", "--ignore-scripts", str(folder))
    archives = sorted(each.name for each in tmp_path.glob("*.tgz"))
    (tmp_path / "package.json").write_text('{"type": "module"}')
    install = ("npm", "install", "--offline", "--no-audit", "--no-fund", "--silent")
    run(tmp_path, *install, *(f"./{each}" for each in archives))
    (tmp_path / "use.js").write_text(TYPESCRIPT)
    assert run(tmp_path, "node", "use.js", environment=environment) == "true function function\n"

    uv, site = CLIENTS.parent / ".tools" / "bin" / "uv", tmp_path / "site"
    run(tmp_path, str(uv), "build", "-q", "--wheel", "-o", str(tmp_path), str(CLIENTS / "python"))
    [wheel] = tmp_path.glob("*.whl")
    run(tmp_path, str(uv), "pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel))
    shown = run(
        tmp_path, sys.executable, "-c", PYTHON, environment=environment | {"PYTHONPATH": str(site)}
    )
    assert shown == f"True {site}/sandyard_client/__init__.py\n"


NEEDED = ("fetch", "typescript-helpers")
"""What the package depends on, from where `make` installed it."""

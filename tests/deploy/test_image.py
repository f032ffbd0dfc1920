"""The image, really built: what is in it, and how its command runs; for `make test-image`."""

import hashlib
import json
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.images import Builder, Container, Image, make_base_archive, started
from tests.support.storage.disks import unmount_below

pytestmark = [pytest.mark.image, pytest.mark.timeout(1800)]

TOOLS = Path(__file__).parents[2] / ".tools"
ARCHIVE = TOOLS / "image-base.tar"
STORE = TOOLS / "image-store"
"""Always the same, so that what a killed run left there is removed by the next."""
USER = "10001"
SECRET = re.compile(
    rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\r?\n[A-Za-z0-9+/=\r\n]{64}"
    rb"|\b(?:AKIA|ASIA)(?![A-Z0-9]*EXAMPLE)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}\b|\bpypi-AgEI\w{20}"
)
SELF_TESTS = ("libgnutls.so",)
"""Libraries of the base that bring keys, known to everybody, to test themselves with."""
PRIVATE_NAMES = {".env", ".git", ".netrc", ".pypirc", ".aws", ".ssh", ".docker", "pip.conf"}
GET = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"


@pytest.fixture(scope="module")
def builder() -> Iterator[Builder]:
    make_base_archive(ARCHIVE)
    remove_store()
    builder = Builder(STORE)
    try:
        builder.make_base(ARCHIVE)
        yield builder
    finally:
        remove_store()


def remove_store() -> None:
    """Some gigabytes. What buildah stores them in stays mounted when it ends."""
    unmount_below(STORE.resolve())
    if STORE.exists():
        shutil.rmtree(STORE)


@pytest.fixture(scope="module")
def image(builder: Builder) -> Iterator[Image]:
    builder.build("sandyard")
    with builder.opened("sandyard") as image:
        yield image


@pytest.fixture(scope="module")
def container(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    folder = tmp_path_factory.mktemp("container")
    data_dir = folder / "data"
    data_dir.mkdir()
    with started(image, data_dir, folder / "log") as container:
        check = image.config["Healthcheck"]["Test"]
        assert check[0] == "CMD"
        container.wait_until_healthy(check[1:])
        yield container


def files_of(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path


def digest_of(root: Path) -> str:
    """Of names, rights and contents."""
    found = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        about = f"{path.relative_to(root)} {path.lstat().st_mode} {path.is_symlink()}"
        found.update(about.encode() + hashlib.sha256(content).digest())
    return found.hexdigest()


def test_it_answers_as_its_user_from_a_root_that_it_cannot_write(container: Container) -> None:
    code, said = container.run("python", "-c", GET, "http://127.0.0.1:8080/readyz")
    assert (code, said.strip()) == (0, '{"status":"ready"}')
    code, said = container.run("python", "-c", "open('/opt/sandyard/new', 'w')")
    assert code
    assert "Read-only file system" in said or "Permission denied" in said
    code, said = container.run("touch", "/etc/new", "/usr/new")
    assert code
    assert "Read-only file system" in said


def test_no_process_is_root_or_can_become_it(container: Container) -> None:
    assert container.processes
    for process in container.processes:
        assert set(process.uids()) == {int(USER)}, process
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
        assert re.search(r"^CapBnd:\t0+$", status, re.MULTILINE)


def test_no_file_gives_rights_away(image: Image) -> None:
    for path in files_of(image.root):
        assert not path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID), path
        if path.is_relative_to(image.root / "opt"):
            assert not path.stat().st_mode & stat.S_IWOTH, path
            assert path.stat().st_uid == 0, path


def test_no_secret_is_in_it(image: Image) -> None:
    for path in files_of(image.root):
        assert not PRIVATE_NAMES & set(path.relative_to(image.root).parts), path
        if not path.name.startswith(SELF_TESTS):
            assert not SECRET.search(path.read_bytes()), path
    assert not any(path.is_file() for path in (image.root / "root").rglob("*.cache"))
    names = re.compile(r"TOKEN|SECRET|PASSWORD|KEY|PEPPER")
    assert not [name for name in image.environment if names.search(name)]


def test_nothing_of_the_build_is_left(image: Image) -> None:
    for name in ("build", "opt/uv", "root/.cache"):
        assert not (image.root / name).exists()


def test_what_it_is_made_of_is_listed_with_its_licences(image: Image) -> None:
    folder = image.root / "opt/sandyard/share/sandyard"
    bill = json.loads((folder / "sbom.json").read_text())
    listed = {each["name"].lower().replace("_", "-") for each in bill["components"]}
    installed = {
        path.name.split("-")[0].lower().replace("_", "-")
        for path in (image.root / "opt/sandyard").rglob("*.dist-info")
    }
    assert installed <= listed
    assert {"sandyard", "opentelemetry-sdk", "boto3", "pyarrow"} <= listed
    assert "unknown" not in (folder / "licences.txt").read_text()


def test_the_image_declares_user_port_volume_and_command(image: Image) -> None:
    config = image.config
    assert config["User"] == f"{USER}:{USER}"
    assert config["ExposedPorts"] == {"8080/tcp": {}}
    assert config["Volumes"] == {"/data": {}}
    assert config["StopSignal"] == "SIGTERM"
    assert image.command[:2] == ["sandyard", "serve"]


def test_a_second_build_is_the_same(builder: Builder, image: Image) -> None:
    """All of it: names, contents, rights, and what is said of it."""
    builder.build("again")
    with builder.opened("again") as again:
        compared = subprocess.run(
            ["diff", "--recursive", "--brief", "--no-dereference", image.root, again.root],
            capture_output=True,
            text=True,
            check=False,
        )
        assert compared.stdout.splitlines() == []
        assert digest_of(image.root) == digest_of(again.root)
        # buildah names the host after the container in which it has built.
        assert image.config | {"Hostname": ""} == again.config | {"Hostname": ""}

"""Images from a registry and from archives: what is stored, and what is refused."""

import hashlib
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sandyard.kit.errors import BodyTooLargeError
from sandyard.kit.public_addresses import networks_of
from sandyard.runtime.errors import DiskFullError
from sandyard.runtime.images.errors import (
    ImageRefusedError,
    RegistryAddressError,
    RegistryError,
    RegistryRefusedError,
)
from sandyard.runtime.images.library import ImageLibrary, StoredImage, files_of
from sandyard.runtime.images.model import Credentials, Reference
from sandyard.runtime.images.registry import NamedRegistry, Registries
from sandyard.runtime.records.disk_reserve import DiskReserve
from sandyard.runtime.store.archives import ArchiveFolder
from tests.support.runtime.root_file_systems import (
    docker_archive,
    gzipped,
    image_config,
    member,
    oci_layout,
    tar,
)
from tests.support.services.registry import PASSWORD, USERNAME, Registry, running_registry

LOWER, UPPER = gzipped(tar(member("a", b"1" * 5000))), gzipped(tar(member("b", b"2" * 5000)))
CONFIG = image_config(Entrypoint=["/app"])
ID, OTHER = "img-" + "a" * 17, "img-" + "b" * 17
MOST = 1 << 30


def library_of(folder: Path, host: str, **more: Any) -> ImageLibrary:
    named = [NamedRegistry.of(f"http://{host}")]
    return ImageLibrary(ArchiveFolder(folder / "parts"), Registries(named, **more))


async def pull(library: ImageLibrary, name: str, image_id: str = ID, **more: Any) -> StoredImage:
    options = {"owned": (), "most_bytes": MOST, "progress": lambda *_: None, **more}
    credentials = options.pop("credentials", None)
    return await library.pull(image_id, Reference.of(name), credentials, **options)


async def test_an_image_is_pulled_by_tag_and_by_digest(registry: Registry, tmp_path: Path) -> None:
    digest = registry.push("team/app:1", LOWER, UPPER, config=CONFIG)
    library = library_of(tmp_path, registry.host)
    told: list[tuple[int, int]] = []
    made = await pull(library, f"{registry.host}/team/app:1", progress=lambda *at: told.append(at))
    assert made.digest == digest
    assert made.config.command == ["/app"]
    assert told[-1] == (made.manifest.size_bytes, made.manifest.size_bytes)
    assert told == sorted(told)
    image = await files_of(library.files, ID)
    assert image is not None
    assert [each.read_bytes() for each in image.layers] == [LOWER, UPPER]
    again = await pull(library, f"{registry.host}/team/app@{digest}", OTHER)
    assert again == made
    assert await files_of(library.files, "img-" + "c" * 17) is None


async def test_the_image_of_an_index_is_that_for_this_machine(
    registry: Registry, tmp_path: Path
) -> None:
    digest = registry.push("many:plain", LOWER, config=CONFIG)
    here = json.loads(CONFIG)
    platform = {"os": here["os"], "architecture": here["architecture"]}
    kind = "application/vnd.oci.image.manifest.v1+json"
    size = registry.blob_path(digest).stat().st_size
    entry = {"mediaType": kind, "digest": digest, "size": size, "platform": platform}
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry],
    }
    registry.push_manifest("many", "all", index)
    made = await pull(library_of(tmp_path, registry.host), f"{registry.host}/many:all")
    assert made.digest == digest


async def test_a_registry_with_passwords(tmp_path: Path) -> None:
    with running_registry(tmp_path / "registry", has_auth=True) as registry:
        registry.push("private:1", LOWER, config=CONFIG)
        library = library_of(tmp_path, registry.host)
        name = f"{registry.host}/private:1"
        for wrong in (None, Credentials(USERNAME, "wrong")):
            with pytest.raises(RegistryRefusedError):
                await pull(library, name, credentials=wrong)
        assert (await pull(library, name, credentials=Credentials(USERNAME, PASSWORD))).digest


async def test_a_part_of_another_account_is_fetched_again(
    registry: Registry, tmp_path: Path
) -> None:
    """Who knows only its digest does not get its content."""
    registry.push("known:1", LOWER, config=CONFIG)
    library = library_of(tmp_path, registry.host)
    made = await pull(library, f"{registry.host}/known:1")
    [part] = made.manifest.layers
    registry.blob_path(part.sha256).unlink()
    with pytest.raises(RegistryRefusedError):
        await pull(library, f"{registry.host}/known:1", OTHER)
    own = {part.sha256}
    assert (await pull(library, f"{registry.host}/known:1", OTHER, owned=own)).digest


async def test_a_damaged_part_is_refused_and_not_stored(registry: Registry, tmp_path: Path) -> None:
    registry.push("damaged:1", UPPER, gzipped(tar(member("x", b"y"))), config=CONFIG)
    library = library_of(tmp_path, registry.host)
    digest = hashlib.sha256(UPPER).hexdigest()
    place = registry.blob_path(digest)
    place.write_bytes(UPPER[:-1] + b"x")
    try:
        with pytest.raises(ImageRefusedError, match="damaged"):
            await pull(library, f"{registry.host}/damaged:1")
    finally:
        place.write_bytes(UPPER)
    assert await library.files.find(digest) is None
    assert await library.files.find(ID) is None


async def test_an_image_that_is_too_large_is_refused_before_it_is_fetched(
    registry: Registry, tmp_path: Path
) -> None:
    registry.push("large:1", LOWER, config=CONFIG)
    library = library_of(tmp_path, registry.host)
    with pytest.raises(BodyTooLargeError):
        await pull(library, f"{registry.host}/large:1", most_bytes=len(LOWER))
    assert await library.files.list_all() == []


@pytest.mark.parametrize("name", ["missing:1", "missing@sha256:" + "0" * 64])
async def test_a_missing_image_is_refused(registry: Registry, tmp_path: Path, name: str) -> None:
    with pytest.raises(RegistryRefusedError):
        await pull(library_of(tmp_path, registry.host), f"{registry.host}/{name}")


async def test_private_addresses_are_refused_unless_they_are_named(
    registry: Registry, tmp_path: Path
) -> None:
    """Also those that a public name leads to, and this machine's own."""
    registry.push("inside:1", LOWER, config=CONFIG)
    unnamed = library_of(tmp_path, "registry.example.com")
    port = registry.host.rpartition(":")[2]
    for host in (registry.host, f"localhost:{port}", "169.254.169.254", "10.0.0.1", "[::1]:5000"):
        with pytest.raises((RegistryAddressError, ImageRefusedError)):
            await pull(unnamed, f"{host}/inside:1")
    allowed = library_of(tmp_path, "other.example", networks=networks_of(["127.0.0.0/8"]))
    with pytest.raises(RegistryError):  # reached, and without TLS
        await pull(allowed, f"{registry.host}/inside:1")


class Crafted:
    """A registry that answers with what it is told."""

    def __init__(self) -> None:
        self.answers: dict[str, web.Response] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.host = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, request.headers.get("Authorization")))
        found = self.answers.get(request.path)
        if found is None:
            return web.Response(status=404)
        return web.Response(body=found.body, status=found.status, headers=found.headers)


@pytest.fixture
async def crafted() -> AsyncIterator[Crafted]:
    made = Crafted()
    app = web.Application()
    app.router.add_get("/{any:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.host = f"127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.mark.parametrize(
    "place",
    [
        "http://127.0.0.1:1/secret",
        "https://169.254.169.254/latest/meta-data",
        "http://example.com/x",
        "file:///etc/passwd",
        "https://127.0.0.1:1/",
    ],
)
async def test_a_redirect_or_a_login_leads_to_no_private_address(
    crafted: Crafted, tmp_path: Path, place: str
) -> None:
    library = library_of(tmp_path, crafted.host)
    path = "/v2/app/manifests/1"
    for headers in ({"Location": place}, {"WWW-Authenticate": f'Bearer realm="{place}"'}):
        status = 302 if "Location" in headers else 401
        crafted.answers[path] = web.Response(status=status, headers=headers)
        with pytest.raises(ImageRefusedError):
            await pull(library, f"{crafted.host}/app:1")


async def test_a_token_is_fetched_and_the_password_goes_to_nobody_else(
    crafted: Crafted, tmp_path: Path
) -> None:
    elsewhere = Crafted()
    challenge = (
        f'Bearer realm="http://{crafted.host}/token",service="s",scope="repository:app:pull"'
    )
    headers = {"WWW-Authenticate": challenge}
    crafted.answers["/v2/app/manifests/1"] = web.Response(status=401, headers=headers)
    crafted.answers["/token"] = web.Response(body=b'{"token": "abc"}')
    with pytest.raises(RegistryRefusedError):
        await pull(
            library_of(tmp_path, crafted.host),
            f"{crafted.host}/app:1",
            credentials=Credentials("ann", "pw"),
        )
    paths = [(path, sent and sent.split()[0]) for path, sent in crafted.asked]
    manifest = "/v2/app/manifests/1"
    assert paths == [(manifest, None), ("/token", "Basic"), (manifest, "Bearer")]
    assert elsewhere.asked == []


async def test_a_registry_that_lies_about_a_digest_is_refused(
    crafted: Crafted, tmp_path: Path
) -> None:
    digest = "sha256:" + "0" * 64
    crafted.answers[f"/v2/app/manifests/{digest}"] = web.Response(body=b'{"layers": []}')
    with pytest.raises(ImageRefusedError, match="not the one"):
        await pull(library_of(tmp_path, crafted.host), f"{crafted.host}/app@{digest}")


async def add(library: ImageLibrary, source: Path) -> StoredImage:
    return await library.add(ID, source, most_bytes=MOST, progress=lambda *_: None)


async def test_archives_of_both_kinds_are_added(tmp_path: Path) -> None:
    library = library_of(tmp_path, "registry.example.com")
    layout = oci_layout(tmp_path / "oci", LOWER, UPPER, config=CONFIG)
    packed = tmp_path / "oci.tar"
    subprocess.run(["tar", "-C", str(layout), "-cf", str(packed), "."], check=True)
    saved = tmp_path / "docker.tar"
    saved.write_bytes(docker_archive(LOWER, UPPER, config=CONFIG))
    for source in (packed, saved):
        made = await add(library, source)
        assert made.config.command == ["/app"]
        image = await files_of(library.files, ID)
        assert image is not None
        assert [each.read_bytes() for each in image.layers] == [LOWER, UPPER]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no archive",
        tar(member("bin/sh", b"x")),
        tar(member("manifest.json", b"[]")),
        tar(member("manifest.json", b'[{"Config": "../../x", "Layers": []}]')),
        tar(member("manifest.json", b'[{"Config": "/etc/passwd", "Layers": []}]')),
        tar(member("oci-layout", b"{}"), member("index.json", b"{}")),
    ],
)
async def test_an_archive_without_an_image_is_refused(tmp_path: Path, content: bytes) -> None:
    source = tmp_path / "image.tar"
    source.write_bytes(content)
    library = library_of(tmp_path, "registry.example.com")
    with pytest.raises(ImageRefusedError):
        await add(library, source)
    assert await library.files.list_all() == []


def layout_of(layers: list[dict[str, Any]], *content: Any) -> bytes:
    digest = hashlib.sha256(CONFIG).hexdigest()
    described = {"digest": f"sha256:{digest}", "size": len(CONFIG)}
    index = json.dumps({"config": described, "layers": layers}).encode()
    files = (member("oci-layout", b"{}"), member("index.json", index))
    return tar(*files, member(f"blobs/sha256/{digest}", CONFIG), *content)


async def test_what_grows_beyond_what_is_left_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "bomb.tar"
    library = library_of(tmp_path, "registry.example.com")
    for bomb in (
        layout_of([], member("large", bytes(32 << 20))),
        tar(member("large", bytes(32 << 20)), member("oci-layout", b"{}")),
    ):
        source.write_bytes(gzipped(bomb))
        assert source.stat().st_size < 1 << 20
        with pytest.raises(ImageRefusedError, match="too large"):
            await library.add(ID, source, most_bytes=16 << 20, progress=lambda *_: None)
    assert await library.files.list_all() == []


async def test_an_archive_leaves_the_reserve_of_the_disk(tmp_path: Path) -> None:
    source = tmp_path / "image.tar"
    source.write_bytes(docker_archive(LOWER, config=CONFIG))
    reserve = DiskReserve(tmp_path, 1 << 60)
    library = ImageLibrary(ArchiveFolder(tmp_path / "parts", reserve), Registries())
    with pytest.raises(DiskFullError):
        await add(library, source)


async def test_a_part_that_is_named_often_is_read_once(tmp_path: Path) -> None:
    source = tmp_path / "image.tar"
    digest = hashlib.sha256(LOWER).hexdigest()
    layers = [{"digest": f"sha256:{digest}", "size": size} for size in range(400)]
    source.write_bytes(layout_of(layers, member(f"blobs/sha256/{digest}", LOWER)))
    made = await add(library_of(tmp_path, "registry.example.com"), source)
    assert len(made.manifest.parts) == 2
    names = json.dumps([{"Config": "c", "Layers": ["c"] * 501}]).encode()
    source.write_bytes(tar(member("manifest.json", names), member("c", CONFIG)))
    with pytest.raises(ImageRefusedError, match="too many layers"):
        await add(library_of(tmp_path, "registry.example.com"), source)

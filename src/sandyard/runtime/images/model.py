"""Names of images, what a manifest says, and what an image runs, without any I/O."""

import hashlib
import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandyard.runtime.images.errors import ImageRefusedError

IMAGE_ID = re.compile(r"img-[a-z0-9]{17}")
MOST_JSON_BYTES = 4 << 20
MOST_LAYERS = 500
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_HOST = re.compile(r"(localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:))(:[0-9]{1,5})?")
_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(/{_PART})*")
_LONGEST = 255
_HUB, _HUB_API = "docker.io", "registry-1.docker.io"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_PORT = re.compile(r"([0-9]{1,5})(/tcp)?")
_MOST_PORT = 65535
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Reference:
    """Where an image is: `host/repository:tag`, or `@digest`."""

    host: str
    repository: str
    tag: str | None
    digest: str | None

    @classmethod
    def of(cls, text: str) -> "Reference":
        """As Docker reads it: without a host it is Docker Hub's, without a tag `latest`. Raises
        ImageRefusedError."""
        name, at, digest = text.partition("@")
        first, slash, rest = name.partition("/")
        host, path = (first, rest) if slash and _HOST.fullmatch(first) else (_HUB, name)
        repository, colon, tag = path.partition(":")
        if host == _HUB and "/" not in repository:
            repository = f"library/{repository}"
        is_valid = (
            len(text) <= _LONGEST
            and _REPOSITORY.fullmatch(repository)
            and (_TAG.fullmatch(tag) if colon else True)
            and (_DIGEST.fullmatch(digest) if at else True)
        )
        if not is_valid:
            raise ImageRefusedError(
                f"{text[:_LONGEST]!r} is not an image's name, such as registry.example.com/app:1.2."
            )
        return cls(host, repository, tag or (None if at else "latest"), digest or None)

    @property
    def version(self) -> str:
        return self.digest or self.tag or ""

    @property
    def api_host(self) -> str:
        return _HUB_API if self.host == _HUB else self.host

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.host}/{self.repository}{tag}{'@' + self.digest if self.digest else ''}"


@dataclass(frozen=True, slots=True)
class Credentials:
    username: str
    password: str = field(repr=False)

    @classmethod
    def of(cls, text: str) -> "Credentials":
        """From `user:password`. Raises ImageRefusedError."""
        username, colon, password = text.strip().partition(":")
        if not (username and colon and password) or "\n" in text.strip():
            raise ImageRefusedError("The secret for a registry must be `user:password`.")
        return cls(username, password)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an image: its SHA-256 in hexadecimal, and its size."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    config: Part
    layers: Sequence[Part]
    """The lowest first."""

    @property
    def parts(self) -> Sequence[Part]:
        """Each once."""
        return list(dict.fromkeys((self.config, *self.layers)))

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.parts)

    @property
    def identity(self) -> str:
        """The same for images of the same parts."""
        parts = "".join(each.sha256 for each in (self.config, *self.layers))
        return hashlib.sha256(parts.encode()).hexdigest()

    def content(self) -> bytes:
        """As a registry would have it."""
        kind = "application/vnd.oci.image"

        def described(part: Part, media_type: str) -> Mapping[str, Any]:
            digest = f"sha256:{part.sha256}"
            return {"mediaType": f"{kind}.{media_type}", "digest": digest, "size": part.size_bytes}

        whole = {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": described(self.config, "config.v1+json"),
            "layers": [described(each, "layer.v1.tar") for each in self.layers],
        }
        return json.dumps(whole).encode()


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What an image runs, and how."""

    command: Sequence[str] = ()
    """Its entry point with its arguments."""
    user: str = ""
    """A name or a number, perhaps with `:group`; empty is root."""
    folder: str = "/"
    ports: Sequence[int] = ()
    """Those of TCP that it exposes, as they are listed."""
    variables: Mapping[str, str] = field(default_factory=dict)


def read_json(content: bytes) -> dict[str, Any]:
    """Raises ImageRefusedError."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ImageRefusedError(f"A part of the image is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ImageRefusedError("A part of the image is not a JSON object.")
    return found


def part_of(descriptor: Any) -> Part:
    """Raises ImageRefusedError, also for a layer that the registry does not have itself."""
    found = descriptor if isinstance(descriptor, dict) else {}
    digest = _DIGEST.fullmatch(str(found.get("digest", "")))
    size = found.get("size")
    if digest is None or not isinstance(size, int) or size < 0 or found.get("urls"):
        raise ImageRefusedError("The image's manifest names a part that can't be fetched.")
    return Part(digest[1], size)


def manifest_of(content: dict[str, Any]) -> Manifest:
    """Raises ImageRefusedError."""
    layers = content.get("layers")
    if not isinstance(layers, list) or len(layers) > MOST_LAYERS:
        raise ImageRefusedError("The image's manifest has no valid list of layers.")
    return Manifest(part_of(content.get("config")), [part_of(each) for each in layers])


def suited(index: dict[str, Any]) -> Part:
    """The entry of an index for this machine. Raises ImageRefusedError."""
    entries = index.get("manifests")
    found = [each for each in entries if _suits(each)] if isinstance(entries, list) else []
    if not found:
        raise ImageRefusedError(f"It has no image for linux/{architecture()}.")
    return part_of(found[0])


def architecture() -> str:
    machine = platform.machine()
    return _MACHINES.get(machine, machine)


def _suits(descriptor: Any) -> bool:
    wanted = descriptor.get("platform") if isinstance(descriptor, dict) else {}
    here = ("linux", architecture())
    if wanted is None:
        return True
    return isinstance(wanted, dict) and (wanted.get("os"), wanted.get("architecture")) == here


def config_of(content: dict[str, Any]) -> ImageConfig:
    """Raises ImageRefusedError for another kind of machine."""
    built_for = content.get("architecture")
    if built_for not in (None, "", architecture()):
        raise ImageRefusedError(f"It is for {built_for!r}, and this machine is {architecture()}.")
    given = content.get("config")
    found: dict[str, Any] = given if isinstance(given, dict) else {}
    pairs = (each.partition("=") for each in _texts(found.get("Env")))
    ports = [_PORT.fullmatch(each) for each in found.get("ExposedPorts") or ()]
    return ImageConfig(
        command=[*_texts(found.get("Entrypoint")), *_texts(found.get("Cmd"))],
        user=str(found.get("User") or ""),
        folder=str(found.get("WorkingDir") or "/"),
        ports=[int(each[1]) for each in ports if each and 0 < int(each[1]) <= _MOST_PORT],
        variables={name: value for name, _, value in pairs if _VARIABLE.fullmatch(name)},
    )


def _texts(given: Any) -> list[str]:
    texts = given if isinstance(given, list) else []
    if not all(isinstance(each, str) and "\0" not in each for each in texts):
        raise ImageRefusedError("The image's settings are not valid.")
    return texts

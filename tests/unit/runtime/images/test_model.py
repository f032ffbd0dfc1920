"""Names of images, manifests and what an image runs."""

from typing import Any

import pytest

from sandyard.runtime.images import model
from sandyard.runtime.images.errors import ImageRefusedError
from sandyard.runtime.images.model import Credentials, ImageConfig, Reference

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("debian", "docker.io/library/debian:latest"),
        ("debian:12", "docker.io/library/debian:12"),
        ("org/app", "docker.io/org/app:latest"),
        ("localhost/app", "localhost/app:latest"),
        ("localhost:5000/a/b:1.2", "localhost:5000/a/b:1.2"),
        ("registry.example.com/team/app@" + DIGEST, f"registry.example.com/team/app@{DIGEST}"),
        (f"host:80/x:1@{DIGEST}", f"host:80/x:1@{DIGEST}"),
    ],
)
def test_a_reference_is_read_as_docker_does(text: str, whole: str) -> None:
    assert str(Reference.of(text)) == whole


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "a//b", "App", "app:", "app:-", "app@", "app@sha256:1", "app@md5:" + "a" * 64),
        *(
            "http://host/app",
            "user@host/app",
            "host:99999999/app",
            "../app",
            "a/../b",
            "a?b",
            "a#b",
        ),
        *("a" * 300, "host.example/app name", "host.example/app\n", "host.example:80@evil/app"),
    ],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(ImageRefusedError):
        Reference.of(text)


@pytest.mark.parametrize("text", ["", "token", ":x", "x:", "a:b\nc"])
def test_a_secret_for_a_registry_has_a_user_and_a_password(text: str) -> None:
    with pytest.raises(ImageRefusedError):
        Credentials.of(text)


def test_a_password_may_have_colons_and_is_not_shown() -> None:
    found = Credentials.of("ann:a:b\n")
    assert (found.username, found.password) == ("ann", "a:b")
    assert "a:b" not in repr(found)


def test_what_an_image_runs() -> None:
    ports: dict[str, Any] = {
        "53/udp": {},
        "80/tcp": {},
        "81": {},
        "0/tcp": {},
        "99999/tcp": {},
        "x": {},
    }
    settings = {
        "Entrypoint": ["/app"],
        "Cmd": ["--fast"],
        "User": "app:www",
        "WorkingDir": "/srv",
        "ExposedPorts": ports,
        "Env": ["A=b=c", "PATH=/bin", "no name=1"],
    }
    found = model.config_of({"architecture": model.architecture(), "config": settings})
    variables = {"A": "b=c", "PATH": "/bin"}
    assert found == ImageConfig(["/app", "--fast"], "app:www", "/srv", [80, 81], variables)
    assert model.config_of({"config": None}) == ImageConfig([], "", "/", [], {})


@pytest.mark.parametrize(
    "config",
    [
        {"architecture": "s390x"},
        {"config": {"Entrypoint": [1]}},
        {"config": {"Cmd": ["a\0b"]}},
    ],
)
def test_settings_that_can_t_be_used_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ImageRefusedError):
        model.config_of(config)


PART = {"digest": DIGEST, "size": 1}


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        {"config": PART},
        {"config": PART, "layers": {}},
        {"config": PART, "layers": [PART] * 501},
        {"config": PART, "layers": [{"digest": "sha256:../../x", "size": 1}]},
        {"config": PART, "layers": [{"digest": DIGEST, "size": -1}]},
        {"config": PART, "layers": [{"digest": DIGEST, "size": "1"}]},
        {"config": PART, "layers": [{**PART, "urls": ["https://elsewhere.example/x"]}]},
        {"config": [], "layers": []},
    ],
)
def test_a_manifest_that_can_t_be_used_is_refused(manifest: dict[str, Any]) -> None:
    with pytest.raises(ImageRefusedError):
        model.manifest_of(manifest)


def test_an_index_has_an_entry_for_this_machine() -> None:
    here = {"os": "linux", "architecture": model.architecture()}
    other = {**PART, "digest": "sha256:" + "b" * 64, "platform": {"os": "plan9"}}
    index = {"manifests": [other, {**PART, "platform": here}]}
    assert model.suited(index).sha256 == "a" * 64
    for missing in ({}, {"manifests": [other]}, {"manifests": "x"}):
        with pytest.raises(ImageRefusedError):
            model.suited(missing)


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 100_000, b"\xff"])
def test_what_is_no_json_object_is_refused(content: bytes) -> None:
    with pytest.raises(ImageRefusedError):
        model.read_json(content)

"""Recipes of templates: what is read of them, what is refused, and how files are put in place."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sandyard.e2b_api.builds.builder import unpacked
from sandyard.e2b_api.builds.recipes import (
    RecipeBody,
    builtin_of,
    copy_script,
    environment_names,
    recipe_of,
    require_kept,
)
from sandyard.e2b_api.builds.service import build_request
from sandyard.e2b_api.control import parsed
from sandyard.e2b_api.errors import BuildFailedError, BuildRefusedError, InvalidRequestError
from sandyard.e2b_api.sandboxes.launcher import Workplace


@pytest.mark.parametrize(
    ("body", "template", "image"),
    [
        ({}, None, "e2bdev/base"),
        ({"fromImage": "Debian:12"}, None, "Debian:12"),
        ({"fromTemplate": "mine:v1"}, "mine:v1", "e2bdev/base"),
    ],
)
def test_where_a_recipe_begins(body: dict[str, Any], template: str | None, image: str) -> None:
    recipe = recipe_of(parsed(json.dumps(body).encode(), RecipeBody))
    assert (recipe.template, recipe.image) == (template, image)


def test_an_image_is_an_official_template_or_an_environment() -> None:
    assert builtin_of("e2bdev/base:latest") == "base"
    assert builtin_of("e2bdev/code-interpreter") == "code-interpreter-v1"
    assert builtin_of("debian:12") is None
    assert environment_names("Debian:12") == ("debian-12", "debian12")
    assert environment_names("team/x:latest") == ("team-x", "team-x")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"steps": {"type": "RUN"}}, InvalidRequestError),
        ({"steps": [{"type": "RUN", "args": [1]}]}, InvalidRequestError),
        ({"steps": [{"type": "RUN", "args": []}]}, InvalidRequestError),
        ({"steps": [{"type": "COPY", "args": ["a", "b"]}]}, InvalidRequestError),
        ({"steps": [{"type": "ADD", "args": []}]}, BuildRefusedError),
        ({"steps": ["RUN"]}, InvalidRequestError),
        ({"steps": [{"type": "USER", "args": ["$(id)"]}]}, BuildRefusedError),
        ({"fromImageRegistry": {"type": "registry"}}, BuildRefusedError),
        ({"startCmd": 1}, InvalidRequestError),
    ],
)
def test_what_is_refused(body: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        recipe_of(parsed(json.dumps(body).encode(), RecipeBody))


@pytest.mark.parametrize("path", ["/home/user", "/home/user/a/b", "/workspace/x", "/home/user/./a"])
def test_what_is_kept(path: str) -> None:
    require_kept(path)


@pytest.mark.parametrize("path", ["/", "/home", "/home/users", "/home/user/../other", "/tmp"])  # noqa: S108
def test_what_is_not_kept(path: str) -> None:
    with pytest.raises(BuildRefusedError):
        require_kept(path)


@pytest.mark.parametrize(
    ("source", "target", "there"),
    [
        ("folder", "out", {"out/a b", "out/below/c"}),
        ("folder", "out/", {"out/a b", "out/below/c"}),
        ("folder/*", "out", {"out/a b", "out/below/c"}),
        ("file", "out", {"out"}),
        ("file", "out/", {"out/file"}),
        ("file", "deep/er/out", {"deep/er/out"}),
        ("f*", "out", {"out/file", "out/folder/a b", "out/folder/below/c"}),
        (".", "out", {"out/file", "out/folder/a b", "out/folder/below/c"}),
    ],
)
def test_where_files_are_put(tmp_path: Path, source: str, target: str, there: set[str]) -> None:
    unpacked_ = tmp_path / "unpacked"
    (unpacked_ / "folder" / "below").mkdir(parents=True)
    for name in ("file", "folder/a b", "folder/below/c"):
        (unpacked_ / name).write_text(name)
    goal = tmp_path / "goal"
    script = copy_script(source, f"{goal}/{target}", "700", unpacked=str(unpacked_))
    subprocess.run(["bash", "-c", script], check=True)
    found = {str(each.relative_to(goal)) for each in goal.rglob("*") if each.is_file()}
    assert found == there


async def test_an_archive_that_is_none_is_a_failed_build() -> None:
    async def sent() -> Any:
        yield b"\x1f\x8b not gzip"

    with pytest.raises(BuildFailedError):
        [piece async for piece in unpacked(sent())]


def test_names_and_tags() -> None:
    wanted = build_request("team/mine:v1", [], cpu=1, memory_mb=256)
    assert (wanted.name.name, wanted.tags, wanted.cpu, wanted.memory_gb) == (
        "mine",
        ["v1"],
        1.0,
        0.5,
    )
    assert build_request("mine", ["a", "mine:b"], cpu=2, memory_mb=2048).tags == ["a", "b"]
    assert build_request("mine:c", ["a", "c"], cpu=1, memory_mb=1024).tags == ["c", "a"]
    for name in ("", "tpl-1", "-a", "a b", "a:b c"):
        with pytest.raises(InvalidRequestError):
            build_request(name, [], cpu=1, memory_mb=1024)
    assert Workplace().path("../x") == "/home/x"

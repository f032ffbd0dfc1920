"""The contracts of `.importlinter` name every module of the parts: no new one is forgotten."""

from collections.abc import Iterator, Sequence
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "sandyard"
NEITHER = {
    "sandyard.telemetry.metrics",
    "sandyard.platform.migrations",
    "sandyard.platform.schema.migrations",
    "sandyard.platform.schema.tables",
    "sandyard.platform.sandboxes.ids",
    "sandyard.previews.web",
}
"""What stores may know although it is no model: it decides nothing."""


def contract(name: str) -> dict[str, list[str]]:
    parser = ConfigParser()
    parser.read(ROOT / ".importlinter")
    section = parser[f"importlinter:contract:{name}"]
    return {key: section[key].split() for key in ("source_modules", "forbidden_modules")}


def modules(folder: Path, package: str) -> Iterator[str]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith("__"):
            continue
        if path.suffix == ".py" or path.is_dir():
            yield f"{package}.{path.stem}"


def modules_of_parts() -> Iterator[str]:
    """Of the Platform those of its nouns, too."""
    for part in ("telemetry", "previews", "platform"):
        for module in modules(SOURCE / part, f"sandyard.{part}"):
            folder = SOURCE / part / module.rpartition(".")[2]
            if part == "platform" and (folder / "model.py").exists():
                yield from modules(folder, module)
            else:
                yield module


def is_named(module: str, expressions: Sequence[str]) -> bool:
    """As import-linter reads them: a star stands for one name."""
    parts = module.split(".")
    return any(
        len(words) == len(parts)
        and all(word in ("*", part) for word, part in zip(words, parts, strict=True))
        for words in (each.split(".") for each in expressions)
    )


@pytest.mark.parametrize("module", [*modules_of_parts()])
def test_a_module_is_a_store_or_what_a_store_must_not_know_or_model(module: str) -> None:
    stores, model = contract("stores"), contract("model")
    is_store = is_named(module, stores["source_modules"])
    is_forbidden = is_named(module, stores["forbidden_modules"])
    is_known = is_named(module, model["source_modules"]) or module in NEITHER
    assert is_store != (is_forbidden or is_known), f"name {module} in one of the contracts"


def test_every_room_of_the_broker_has_the_layers_of_a_room() -> None:
    """That contract is exhaustive: it names every module of the rooms that it contains."""
    parser = ConfigParser()
    parser.read(ROOT / ".importlinter")
    containers = parser["importlinter:contract:broker-rooms"]["containers"].split()
    rooms = [each.parent.name for each in (SOURCE / "broker").glob("*/errors.py")]
    assert sorted(containers) == sorted(f"sandyard.broker.{room}" for room in rooms)

"""Every kind of error has a stable code, a message and a status."""

import importlib
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from sandyard.kit.errors import SandyardError
from sandyard.kit.http.error_statuses import status_of


def _errors(kind: type[SandyardError] = SandyardError) -> Iterator[type[SandyardError]]:
    """Every kind of error that the installed program can raise, each once."""
    for module in (
        "sandyard.bootstrap",
        "sandyard.entrypoints.server.serve",
        "sandyard.entrypoints.cli",
    ):
        importlib.import_module(module)
    yield kind
    for subclass in kind.__subclasses__():
        if subclass.__module__.startswith("sandyard."):
            yield from _errors(subclass)


ERRORS = sorted(set(_errors()), key=lambda kind: kind.__qualname__)


def test_the_walk_over_the_errors_meets_those_of_every_layer() -> None:
    names = {kind.__name__ for kind in ERRORS}
    assert names >= {"InvalidError", "NoSandboxesAvailableError", "PortInUseError", "SettingsError"}


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_has_a_stable_code_a_message_and_a_status(kind: type[SandyardError]) -> None:
    assert re.fullmatch(r"[A-Z0-9]+(_[A-Z0-9]+)*", kind.code)
    assert "__doc__" in vars(kind)
    assert len((kind.__doc__ or "").split()) >= 3
    error = kind.__new__(kind)  # some take arguments of their own; the status is the class's
    assert status_of(error) in {
        400,
        401,
        403,
        404,
        405,
        409,
        413,
        416,
        429,
        500,
        501,
        502,
        503,
        504,
    }


def test_no_two_errors_declare_the_same_code() -> None:
    declared: dict[str, list[str]] = defaultdict(list)
    for kind in ERRORS:
        if kind.code != getattr(kind.__base__, "code", None):
            declared[kind.code].append(kind.__qualname__)
    assert {code: kinds for code, kinds in declared.items() if len(kinds) > 1} == {}


def test_no_two_concrete_errors_share_a_code() -> None:
    concrete = [kind for kind in ERRORS if not set(kind.__subclasses__()) & set(ERRORS)]
    sharing: dict[str, list[str]] = defaultdict(list)
    for kind in concrete:
        sharing[kind.code].append(kind.__qualname__)
    assert {code: kinds for code, kinds in sharing.items() if len(kinds) > 1} == {}


def test_one_child_at_most_inherits_the_code_of_its_category() -> None:
    for kind in ERRORS:
        children = [child for child in kind.__subclasses__() if child in ERRORS]
        heirs = [child.__qualname__ for child in children if "code" not in vars(child)]
        assert len(heirs) <= 1, (kind, heirs)

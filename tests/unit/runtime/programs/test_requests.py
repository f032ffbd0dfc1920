"""What is refused before anything begins, at its edges."""

import pytest

from sandyard.kit.errors import InvalidError
from sandyard.runtime.errors import FilesTooLargeError, UnsafePathError
from sandyard.runtime.model import Limits
from sandyard.runtime.programs.lifecycle import check_environment, check_sizes

LIMITS = Limits(cpu=1, memory_bytes=1, processes=1, storage_bytes=10, max_running_sec=1)


def test_files_up_to_the_storage_are_taken() -> None:
    check_sizes({"a": b"12345", "b/c": b"12345"}, LIMITS)
    with pytest.raises(FilesTooLargeError):
        check_sizes({"a": b"12345", "b/c": b"123456"}, LIMITS)
    with pytest.raises(UnsafePathError):
        check_sizes({"../a": b""}, LIMITS)


def test_an_environment_has_plain_names_and_64_kb() -> None:
    check_environment({})
    check_environment({"A": "x" * 65535})
    check_environment({"_Name9": "any text: ü \n", "A" * 128: ""})


@pytest.mark.parametrize(
    "environment",
    [
        {"": "x"},
        {"1A": "x"},
        {"A-B": "x"},
        {"A=B": "x"},
        {"A\n": "x"},
        {"A" * 129: "x"},
        {"A": "x\0y"},
        {"A": "x" * 65536},
    ],
)
def test_other_environments_are_refused(environment: dict[str, str]) -> None:
    with pytest.raises(InvalidError):
        check_environment(environment)

"""How git is told what to fetch, and with which token."""

import pytest

from sandyard.runtime.errors import InvalidRepositoryError
from sandyard.runtime.repositories import check_ref, clone_command, clone_failure, credentials

URL = "https://git.example.org:8443/a/b.git"


def test_a_token_is_for_its_host_alone_and_stands_in_no_command() -> None:
    given = credentials(URL, "tok-1")
    assert given["GIT_CONFIG_KEY_1"] == "credential.https://git.example.org:8443.helper"
    assert "tok-1" not in given["GIT_CONFIG_VALUE_1"]
    assert [name for name, value in given.items() if "tok-1" in value] == ["SANDYARD_GIT_TOKEN"]
    assert given["SANDYARD_GIT_USER"] == "x-access-token"
    assert credentials(URL, "ann:tok-1")["SANDYARD_GIT_USER"] == "ann"


def test_without_a_token_no_helper_is_asked() -> None:
    given = credentials(URL, None)
    assert (given["GIT_CONFIG_KEY_0"], given["GIT_CONFIG_VALUE_0"]) == ("credential.helper", "")
    assert given["GIT_CONFIG_COUNT"] == "1"


def test_a_ref_is_an_option_before_the_address() -> None:
    words = clone_command(URL, protocol="https", ref="v1")
    assert words[-5:] == ["--branch", "v1", "--", URL, "."]
    assert "--branch" not in clone_command(URL, protocol="https")


@pytest.mark.parametrize("ref", ["main", "v1.2.3", "feature/x-1", "a_b+c", "a/-b"])
def test_a_branch_or_a_tag_is_taken(ref: str) -> None:
    check_ref(ref)


@pytest.mark.parametrize("ref", ["", "-x", "a..b", "a b", "/a", "a/", "a.", "a\n", "a:b", "@", "é"])
def test_anything_else_is_not(ref: str) -> None:
    with pytest.raises(InvalidRepositoryError):
        check_ref(ref)


def test_who_needs_a_token_is_told_where_it_belongs() -> None:
    asked = f"fatal: could not read Username for '{URL}': terminal prompts disabled\n"
    assert "repository_secret" in clone_failure(asked)
    refused = clone_failure(f"fatal: Authentication failed for '{URL}'\n")
    assert (
        refused == f"The repository could not be cloned: fatal: Authentication failed for '{URL}'"
    )

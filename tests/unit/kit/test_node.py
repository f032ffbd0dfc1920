"""What a node holds, and what another one does."""

from pathlib import Path

import pytest

from sandyard.kit.node import ElsewhereError, node_name, require_here


class _MineElsewhereError(ElsewhereError):
    """My thing is on another node. Ask there."""

    code = "MY_THING_ELSEWHERE"


def test_a_data_dir_keeps_its_name(tmp_path: Path) -> None:
    name = node_name(tmp_path / "a")
    assert node_name(tmp_path / "a") == name != node_name(tmp_path / "b")


@pytest.mark.parametrize("holder", [None, "here"])
def test_what_is_here_or_nowhere_is_no_error(holder: str | None) -> None:
    require_here(holder, node="here")


def test_what_is_elsewhere_is_told_with_the_name_of_its_node() -> None:
    with pytest.raises(_MineElsewhereError) as caught:
        require_here("there", node="here", error=_MineElsewhereError)
    assert caught.value.message == "My thing is on another node. Ask there. The node is there."
    assert caught.value.details == {"node": "there"}

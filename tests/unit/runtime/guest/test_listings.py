"""What a machine lists of a folder: no more than one answer holds."""

import os
from pathlib import Path

import pytest

from sandyard.runtime.guest import Paths, RefusedError
from sandyard.runtime.guest.files import list_folder


def test_names_and_attributes_of_a_listing_are_limited(tmp_path: Path) -> None:
    for number in range(700):
        file = tmp_path / f"{number}"
        file.touch()
        os.setxattr(file, "user.noted", b"x" * 3500)
    paths = Paths(str(tmp_path))
    assert len(list_folder(paths, path="/workspace", depth=1)) == 700
    assert list_folder(paths, path="/workspace", depth=1)[0]["attributes"] == {}
    page = list_folder(paths, path="/workspace", depth=1, limit=10, attributes="no")
    assert page[0]["attributes"]["noted"] == "x" * 3500
    with pytest.raises(RefusedError) as refused:
        list_folder(paths, path="/workspace", depth=1, attributes="")
    assert refused.value.code == "TOO_MANY_FILES"

"""Watches of a server with several processes."""

from typing import Any, cast

import pytest

from sandyard.e2b_api.envd.filesystem import FilesystemService
from sandyard.e2b_api.errors import NotOfferedError


async def test_several_workers_offer_streams_of_changes_only() -> None:
    with pytest.raises(NotOfferedError):
        await FilesystemService(has_watchers=False).create_watcher(cast("Any", None), {})

"""A registry, as a process."""

from collections.abc import Iterator

import pytest

from tests.support.services.registry import Registry, running_registry


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as made:
        yield made

"""The templates of all configurations, synthesised once for all tests."""

import os

import pytest

from tests.deploy.aws.templates import Synthesised, synthesise


@pytest.fixture(scope="session")
def synthesised(tmp_path_factory: pytest.TempPathFactory) -> Synthesised:
    """Worker processes of one run share what the first of them has made."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    return synthesise(shared / "aws")

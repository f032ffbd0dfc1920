"""Which failures are left to a job, and which are not."""

import pytest

from sandyard.kit.errors import InvalidError, UnavailableError
from sandyard.platform.sandboxes.errors import SandboxChangedError
from sandyard.platform.sandboxes.retried_later import retried_later
from sandyard.runtime.errors import RunNotFoundError


@pytest.mark.parametrize("error", [SandboxChangedError, RunNotFoundError])
def test_a_conflict_or_something_gone_is_silent(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    with retried_later("end", "sbx-1"):
        raise error
    assert caplog.records == []


def test_an_outage_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with retried_later("end", "sbx-1"):
        raise UnavailableError
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_any_other_error_is_raised() -> None:
    with pytest.raises(InvalidError), retried_later("end", "sbx-1"):
        raise InvalidError

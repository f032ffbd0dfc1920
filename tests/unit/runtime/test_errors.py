"""Each error has a code of its own and says something."""

from sandyard.kit.errors import SandyardError
from sandyard.kit.http.error_statuses import status_of
from sandyard.runtime import errors
from sandyard.runtime.errors import START_FAILURES, StartFailedError, start_failure


def test_codes_are_unique_and_every_start_failure_is_found_again_by_its_code() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, SandyardError)
        and kind.__module__ == errors.__name__
    ]
    assert len({kind.code for kind in kinds}) == len(kinds)
    assert {kind for kind in kinds if issubclass(kind, StartFailedError)} == set(
        START_FAILURES.values()
    )
    for code, kind in START_FAILURES.items():
        error = start_failure(code, "", log_lines=["x"])
        assert type(error) is kind
        assert error.message
        assert error.details == {"log": ["x"]}
    assert type(start_failure("OF_A_LATER_VERSION", "why")) is StartFailedError


def test_what_a_sandbox_does_to_itself_is_a_conflict() -> None:
    """Its callers also handle it as an outage of the runtime."""
    for kind in (errors.AgentFailedError, errors.OperationFailedError, errors.NotPackedError):
        assert status_of(kind()) == 409
    assert status_of(errors.RuntimeUnavailableError()) == 503

"""Whose machine it is, by what E2B was told about it."""

from sandyard.runtime.e2b.endings import metadata_of, run_id_of
from sandyard.runtime.model import RunId

RUN_ID = RunId("sandbox", "box", "3")


def test_a_machine_is_known_by_its_metadata() -> None:
    assert run_id_of("sandbox", metadata_of(RUN_ID, node="here")) == RUN_ID

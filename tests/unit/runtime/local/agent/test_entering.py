"""An agent enters the machine that it was started for, and no other."""

import subprocess

import pytest

from sandyard.runtime.local.agent.entering import Entry, enter
from sandyard.runtime.local.host import processes


@pytest.mark.parametrize("is_known", [True, False])
def test_a_machine_is_not_mistaken_for_another_that_got_its_pid(*, is_known: bool) -> None:
    with subprocess.Popen(["sleep", "60"]) as another:
        before = f"{processes.identity(another.pid)}0" if is_known else None
        try:
            with pytest.raises(ChildProcessError, match="gone"):
                enter(Entry(another.pid, before, 1000, None, {}, None))
        finally:
            another.kill()

import subprocess

import pytest

from sandyard.runtime.local.host import processes
from sandyard.runtime.local.jail import namespaces


@pytest.mark.parametrize("is_told", [True, False])
def test_a_machine_is_not_taken_for_another_that_got_its_number(*, is_told: bool) -> None:
    with subprocess.Popen(["sleep", "60"]) as another:
        before = f"{processes.identity(another.pid)}0" if is_told else None
        try:
            with pytest.raises(ChildProcessError, match="gone"):
                namespaces.enter(another.pid, identity=before, uid=1000, seccomp=None)
        finally:
            another.kill()

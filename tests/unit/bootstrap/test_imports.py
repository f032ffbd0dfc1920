"""A server imports only the parts that it serves: what it imports is most of what a start costs."""

import subprocess
import sys


def test_the_console_of_other_parts_imports_nothing_of_the_platform() -> None:
    program = (
        "import sys, sandyard.bootstrap.console\n"
        "print(*(name for name in sys.modules if name.startswith('sandyard.platform.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE)
    assert done.stdout.split() == [b"sandyard.platform.http"]

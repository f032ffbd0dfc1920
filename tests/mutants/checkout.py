"""A copy of the source and the tests, in which one mutant at a time is applied."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from tests.mutants.model import ROOT, Mutant

COPIED = ("src", "tests")
LINKED = (".tools", "benchmarks", "clients", "deploy", "docs", "pyproject.toml", "README.md")
"""What the tests read besides; nothing that they write is below it."""
TEST_SEC, RUN_SEC = 120, 600
_mtimes = count(int(time.time()))
"""Python compiles a file again if its time is another, in whole seconds."""


class Checkout:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, symlinks=True)
        for name in LINKED:
            (folder / name).symlink_to(ROOT / name)
        path = os.pathsep.join((str(folder / "src"), str(folder)))
        self._environment = {**os.environ, "PYTHONPATH": path}
        self._require_own_source()

    @contextmanager
    def applied(self, mutant: Mutant) -> Iterator[None]:
        file = self._folder / mutant.path
        right = file.read_text()
        try:
            _write(file, mutant.applied(right))
            yield
        finally:
            _write(file, right)

    def run(self, tests: Sequence[str], *options: str) -> tuple[int, str]:
        """The exit code of pytest and its output."""
        command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=line", *options]
        command += ["-p", "no:cacheprovider", f"--timeout={TEST_SEC}", *tests]
        if all("::" in test for test in tests):
            command += ["-m", "torture or not torture"]  # they are wanted by their names
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                exit_code = process.wait(RUN_SEC)
            except subprocess.TimeoutExpired:
                exit_code = -1
            finally:
                _end_session(process)
            output.seek(0)
            return exit_code, output.read()

    def _require_own_source(self) -> None:
        """The installed package is that of the checkout: it must not be the one that is tested."""
        show = [sys.executable, "-c", "import sandyard; print(sandyard.__file__)"]
        found = subprocess.check_output(
            show, cwd=self._folder, env=self._environment, text=True
        ).strip()
        if not Path(found).is_relative_to(self._folder):
            raise SystemExit(f"the tests would import {found}, not the copy in {self._folder}")


def _end_session(process: "subprocess.Popen[bytes]") -> None:
    """What the tests have started ends with them, also if they were broken off."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    moment = next(_mtimes)
    os.utime(file, (moment, moment))

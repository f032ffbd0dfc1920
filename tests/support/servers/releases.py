"""Other releases of Sandyard as real processes: 0.2.0 from its wheel, and ones to come."""

import atexit
import shutil
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from sandyard.broker.stores.sql import MIGRATIONS
from tests.support.servers.processes import run_sandyard

ROOT = Path(__file__).parents[3]
WHEEL = ROOT / "tests" / "fixtures" / "sandyard-0.2.0-py3-none-any.whl"

_SCRIPT = '''"""{title}"""

oldest_code = "{oldest_code}"


def upgrade(connection):
    connection.exec_driver_sql("ALTER TABLE broker.sandboxes {change}")
'''
_ADD = "ADD COLUMN shelf VARCHAR(8)"
_DROP = "DROP COLUMN shelf"


@cache
def release_0_2_0() -> dict[str, str]:
    """The environment in which `python -m sandyard` is 0.2.0, with the dependencies of today. It is
    unpacked and compiled once."""
    folder = Path(tempfile.mkdtemp(prefix="sandyard-0.2.0-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)  # users of sandboxes read it
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(folder)
    return {"PYTHONPATH": str(folder)}


def after(version: str) -> str:
    return f"{int(version) + 1:04}"


def release_that_expands(folder: Path) -> dict[str, str]:
    """The release after this one: its schema has a column more, which this one does not miss."""
    _add_script(_copy(folder), after(MIGRATIONS.head), MIGRATIONS.head, "Expand.", _ADD)
    return {"PYTHONPATH": str(folder)}


def release_that_contracts(folder: Path) -> dict[str, str]:
    """The one after that, which removes something that only this one's code would need."""
    scripts, expanded = _copy(folder), after(MIGRATIONS.head)
    _add_script(scripts, expanded, MIGRATIONS.head, "Expand.", _ADD)
    _add_script(scripts, after(expanded), expanded, "Contract.", _DROP)
    return {"PYTHONPATH": str(folder)}


def _copy(folder: Path) -> Path:
    package = folder / "sandyard"
    shutil.copytree(ROOT / "src" / "sandyard", package)  # with what is compiled
    return package / "broker" / "stores" / "migrations"


def _add_script(scripts: Path, version: str, oldest_code: str, title: str, change: str) -> None:
    text = _SCRIPT.format(title=title, oldest_code=oldest_code, change=change)
    (scripts / f"{version}_step.py").write_text(text)


def sandyard(folder: Path, *arguments: str, environment: dict[str, str]) -> str:
    """What the command prints; it must succeed."""
    log = folder / "command.log"
    process = run_sandyard(*arguments, environment=environment, log=log)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, log.read_text()
    return output.decode()

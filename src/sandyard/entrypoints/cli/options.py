"""Commands that work on the data of this machine: their data dir and settings."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sandyard.settings import Settings


def data_dir_option(text: str) -> Callable[[Any], Any]:
    return click.option(
        "--data-dir",
        default="./data",
        envvar="DATA_DIR",
        show_envvar=True,
        type=click.Path(file_okay=False, path_type=Path),
        help=text,
    )


def quiet_settings() -> "Settings":
    """The settings, for a command whose output is its result: only errors are logged."""
    from sandyard.kit.observability.log import configure_logging
    from sandyard.settings import load_settings

    configure_logging("ERROR", "text")
    return load_settings()


def require_data(settings: "Settings", part: str, data_dir: Path) -> None:
    from sandyard.bootstrap.registry import get_spec
    from sandyard.settings import SettingsError

    if not get_spec(part).has_data(settings, data_dir):
        what = {"broker": "is no pool", "previews": "are no previews"}[part]
        raise SettingsError(f"There {what} in {data_dir}. Choose another --data-dir.")


@contextmanager
def locked_part(part: str, data_dir: Path) -> Iterator["Settings"]:
    """The part's data, which no other process uses meanwhile. Raises if there is none."""
    from sandyard.bootstrap.registry import get_spec
    from sandyard.entrypoints.server.data_dir import locked_if
    from sandyard.settings import load_settings

    settings = load_settings()
    require_data(settings, part, data_dir)
    with locked_if(get_spec(part).is_embedded(settings), data_dir):
        yield settings

"""Options shared by several commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def data_dir_option(text: str) -> Callable[[Any], Any]:
    return click.option(
        "--data-dir",
        default="./data",
        envvar="DATA_DIR",
        show_default=True,
        show_envvar=True,
        type=click.Path(file_okay=False, path_type=Path),
        help=text,
    )

"""A sign of life for work that takes a while, shown only to a person at a terminal."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SHOW_AFTER_SEC = 2.0


@contextmanager
def while_working(what: str) -> Iterator[None]:
    """Show a moving bar on stderr once the work has lasted two seconds."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    progress.add_task(what, total=None)
    timer = threading.Timer(_SHOW_AFTER_SEC, progress.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        progress.stop()

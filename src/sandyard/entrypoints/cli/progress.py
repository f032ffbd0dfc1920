"""Progress indicator for long work, shown only on a terminal."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SHOW_AFTER_SEC = 2.0


@contextmanager
def while_working(what: str) -> Iterator[None]:
    """Show a moving bar on stderr once the work has lasted two seconds."""
    with counting(what, None):
        yield


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """The same, with a bar that fills as the yielded function is called with the progress."""
    if not sys.stderr.isatty():
        yield lambda _: None
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
    task = progress.add_task(what, total=total)
    timer = threading.Timer(_SHOW_AFTER_SEC, progress.start)
    timer.start()
    try:
        yield lambda done: progress.update(task, completed=done)
    finally:
        timer.cancel()
        timer.join()
        progress.stop()

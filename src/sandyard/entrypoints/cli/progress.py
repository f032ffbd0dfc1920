"""Progress indicator for long work, shown only on a terminal."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

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
    from rich.progress import TimeElapsedColumn

    progress = _bar(TimeElapsedColumn())
    task = progress.add_task(what, total=total)
    timer = threading.Timer(_SHOW_AFTER_SEC, progress.start)
    timer.start()
    try:
        yield lambda done: progress.update(task, completed=done)
    finally:
        timer.cancel()
        timer.join()
        progress.stop()


@contextmanager
def transferring(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar with bytes and their rate, from the beginning."""
    if not sys.stderr.isatty():
        yield lambda _done, _size: None
        return
    from rich.progress import DownloadColumn, TransferSpeedColumn

    with _bar(DownloadColumn(), TransferSpeedColumn()) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, size: progress.update(task, completed=done, total=size)


def _bar(*numbers: "ProgressColumn") -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), *numbers)
    return Progress(*columns, console=Console(stderr=True), transient=True)

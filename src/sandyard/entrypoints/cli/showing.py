"""Output of commands: tables for people, JSON for programs, once or on every change."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

WATCH_SEC = 2.0
_CELL = 100

T = TypeVar("T")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    value: Callable[[Row], Any]
    is_wide: bool = False
    """Shown only by `-o wide`."""
    name: str = ""
    """The field of the answer, if it is one."""


@dataclass(frozen=True, slots=True)
class View:
    """How to show a listing."""

    output: str
    watch: bool = False

    def show(self, look: Callable[[], Sequence[Row]], columns: Sequence[Column]) -> None:
        """Once, or with `--watch` on every change, until interrupted."""
        if not self.watch:
            click.echo(self.rendered(look(), columns))
        elif sys.stdout.isatty() and self.output != "json":
            from rich.text import Text

            show_live(lambda: Text(self.rendered(look(), columns)), WATCH_SEC)
        else:
            show_lines(changes(lambda: self.rendered(look(), columns, is_line=True), WATCH_SEC))

    def show_facts(self, answer: Any) -> None:
        """Each field on a line of its own."""
        if self.output == "json" or not isinstance(answer, Mapping):
            click.echo(json.dumps(answer, indent=2))
            return
        width = max(map(len, answer), default=0)
        for name, value in answer.items():
            click.echo(f"{name.ljust(width)}  {_cell(_worded(name, value))}")

    def rendered(
        self, rows: Sequence[Row], columns: Sequence[Column], *, is_line: bool = False
    ) -> str:
        if self.output == "json":
            return json.dumps(list(rows), indent=None if is_line else 2)
        known = columns or [named(name) for name in (rows[0] if rows else ())]
        shown = [each for each in known if self.output == "wide" or not each.is_wide]
        return table(rows, shown)

    def show_one(self, row: Row, columns: Sequence[Column]) -> None:
        if not columns:
            self.show_facts(row)
        elif self.output == "json":
            click.echo(json.dumps(row, indent=2))
        else:
            click.echo(self.rendered([row], columns))

    def show_each(self, rows: Iterable[Row], line: Callable[[Any], str]) -> None:
        """Each as it arrives: as JSON, or as a line for people."""
        show_lines(json.dumps(row) if self.output == "json" else line(row) for row in rows)


def show_lines(lines: Iterable[str]) -> None:
    """Each as it arrives, also to a pipe."""
    for line in lines:
        click.echo(line)
        sys.stdout.flush()


def view_options(*, watch: bool) -> list[click.Option]:
    output = click.Choice(["json", "table", "wide"])
    options = [
        click.Option(["-o", "--output"], type=output, default="table"),
        click.Option(["--json", "output"], flag_value="json", help="The same as `-o json`."),
    ]
    if watch:
        text = "Show it again whenever it changes, until interrupted."
        options.append(click.Option(["--watch"], is_flag=True, help=text))
    return options


def table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Columns of equal width, without lines, so that `awk` and `cut` can read them. Cells of one
    row alone are whole, of several rows cut (`-o json` has all of them)."""
    most = _CELL if len(rows) > 1 else None
    cells = [[each.title.upper() for each in columns]]
    cells += [[_cell(each.value(row), most) for each in columns] for row in rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )
    return "\n".join(padded)


def columns_of(text: str) -> tuple[Column, ...]:
    """From the names of fields, as `name status=state note*`: with another title, or only by
    `-o wide`."""
    return tuple(map(named, text.split()))


def named(text: str) -> Column:
    title, _, name = text.rstrip("*").rpartition("=")
    *outer, last = name.split(".")

    def value(row: Row) -> Any:
        for each in outer:
            row = row.get(each) or {}
        return _worded(last, row.get(last))

    shown = title or name.removesuffix("_id").removesuffix("_at")
    return Column(shown.replace("_", " "), value, text.endswith("*"), (*outer, last)[0])


_TIMES = ("from", "to", "until", "start_time", "end_time")


def _worded(name: str, value: Any) -> Any:
    """For people: times in this computer's zone, lists by their items."""
    if name.endswith("_at") or name in _TIMES:
        return local_iso(value) if isinstance(value, str) else local_time(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(
            json.dumps(each) if isinstance(each, dict) else str(each) for each in value
        )
    return json.dumps(value) if isinstance(value, dict) else value


def local_time(seconds: float | None) -> str | None:
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def local_iso(text: str | None) -> str | None:
    if not text:
        return None
    return local_time(datetime.fromisoformat(text).timestamp())


def event_line(event: Mapping[str, Any]) -> str:
    words = [local_iso(event["at"]), event["kind"], event["subject"], "by", event["actor"]]
    if event["reason"]:
        words += ["because", event["reason"]]
    line = " ".join(str(word) for word in words)
    return _printable(line)


def _cell(value: Any, most: int | None = None) -> str:
    """On one line, of limited length, without terminal control characters."""
    if value is None or value == "":
        return "-"
    text = _printable(" ".join(str(value).split()))
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "�" for char in text)


def show_live(render: Callable[[], "RenderableType"], every_sec: float) -> None:
    """On the same place of the terminal, until interrupted."""
    from rich.live import Live

    with Live(render(), refresh_per_second=4) as live:
        while True:
            time.sleep(every_sec)
            live.update(render())


def changes(look: Callable[[], T], every_sec: float) -> Iterator[T]:
    """What is seen first, and then whenever it differs."""
    before = None
    while True:
        now = look()
        if now != before:
            before = now
            yield now
        time.sleep(every_sec)
